"""The text the pocket coder learns from: a grammar over scikit-learn, its mistakes, and the prompts around them.

`parts` says which classes there are, `features` how columns are made of columns, `grammar` how bodies are put together,
`mistakes` what goes wrong in them, `tables` what they are written for, and `corpus` joins it all.
"""
