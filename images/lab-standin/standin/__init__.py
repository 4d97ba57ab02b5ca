"""A stand-in for vLLM and SGLang: their command lines, HTTP interface, metrics and faults, without a model.

It needs nothing but Python's standard library, starts at once, and answers what the lab's tests ask. Two or
more ranks must meet at the master address, as the ranks of a real engine must.
"""
