"""Real engines behind `mmhash gateway`: one trace, several policies, the engines' own figures."""
