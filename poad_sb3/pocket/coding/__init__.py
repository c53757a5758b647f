"""The text the pocket coder learns from: a grammar over scikit-learn, its mistakes, and the prompts around them.

`parts` lists the classes, `features` makes columns from columns, `grammar` puts bodies together, `mistakes` spoils
them, `tables` has the tables that they are written for, and `corpus` joins it all.
"""
