"""Not SGLang: the lab's stand-in for it, see `standin`."""
