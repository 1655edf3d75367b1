"""``python -m perfsuite.history._asv MACHINE_FILE ARGUMENTS``: asv as a ladder starts it.

asv keeps what it knows of the machine in the home folder and asks for it on a terminal; a ladder keeps it beside its
results. And asv ends with whoever started it, however that ends.
"""

import signal
import sys

from perfsuite.processes import end_with_parent

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    end_with_parent(signal.SIGINT)  # at which asv ends what it has started, too
    machine_file = sys.argv.pop(1)

    from asv.machine import MachineCollection
    from asv.main import main

    MachineCollection.get_machine_file_path = staticmethod(lambda: machine_file)
    main()
