"""English words too common to tell texts apart."""

# Common words left out on purpose: may (the month), won, us, go.
_STOPWORDS = """
    a about after again all also am an and any anyone anything are aren as at be because been before being below
    between both but by can could couldn did didn do does doesn doing don down during each either else ever every for
    from further get gets getting got had hadn has hasn have haven having he her here hers herself him himself his how
    however i if in into is isn it its itself just ll many me might more most much must my myself no nor not of off on
    once only or other our ours ourselves out over own please re same shall she should shouldn so some someone something
    such tell than that the their theirs them themselves then there these they this those through to too under until up
    upon ve very was wasn we were weren what when where whether which while who whom whose why will with within without
    would wouldn yes yet you your yours yourself
"""
STOPWORDS = frozenset(_STOPWORDS.split())
