import mmhash
from mmhash import errors


def test_the_docstring_draws_the_whole_tree() -> None:
    assert errors.__doc__ is not None
    names = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert all(name in errors.__doc__ for name in names)
    assert all(issubclass(getattr(errors, name), errors.MMHashError) for name in names)
    assert all(getattr(mmhash, name) is getattr(errors, name) for name in names)


def test_input_errors_are_what_python_programs_expect() -> None:
    assert issubclass(errors.InputTypeError, TypeError)
    assert issubclass(errors.InputValueError, ValueError)
