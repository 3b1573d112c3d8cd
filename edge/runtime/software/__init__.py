"""The software that a release brings: installed beside the running one, chosen at each start (docs/adr/0018)."""
