"""From the text of PTX to blocks of Python that run on vectors of threads."""
