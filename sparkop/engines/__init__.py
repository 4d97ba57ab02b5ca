"""vLLM and SGLang: arguments, environment, mounts, readiness, metric names."""
