"""How clients of the served API are set up on the machine that runs sparkop, and undone again."""
