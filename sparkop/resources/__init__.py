"""One module a kind of thing that sparkop observes, compares and acts on."""
