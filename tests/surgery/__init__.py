"""The table of what other code does to an orthogonal weight: `SECTIONS`, each a title and its rows."""
