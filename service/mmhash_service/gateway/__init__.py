"""`mmhash gateway`: a streaming reverse proxy in front of vLLM and SGLang workers."""
