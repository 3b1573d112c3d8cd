"""The GPU engine: TensorRT, on a Jetson or a workstation. Nothing is loaded here: `facts` stay cheap to ask for."""
