"""Models on this machine: llama.cpp's own server inside the process, one for each file of weights."""
