"""The CPU engine: OpenVINO, on x86-64 and aarch64. Nothing is loaded here, so that `facts` stay cheap to ask for."""
