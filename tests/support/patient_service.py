"""`mmhash`, with more time for the memo's store: `python -m tests.support.patient_service serve`.

Only to be run: it changes the process that imports it.
"""

import pytest

from mmhash.cli import main
from tests.support.patience import be_patient

be_patient(pytest.MonkeyPatch())  # not in a function: each worker imports this module

if __name__ == "__main__":
    main()
