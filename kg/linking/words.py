"""Words of English that carry no name of their own."""

_WORDS = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could did do does doing down during each either few for from further had has have having he her here hers him his
how i if in into is it its itself just may me might more most must my neither no nor not now of off on once only or
other our out over own per same shall she should so some such than that the their them then there these they this those
through to too under until up upon us very via was we were what when where whether which while who whom whose why will
with within without would yet you your
"""  # noqa: E501
FUNCTION_WORDS = frozenset(_WORDS.split())
