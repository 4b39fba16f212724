"""The built-in tasks: named, versioned environments, one file per namespace."""

from qenvs.registration import register


def register_tasks() -> None:
    """Put the built-in tasks into `qenvs.registry`; their modules load on first use."""
    register(
        "qubit/StateTransfer-v0",
        "qenvs.tasks.qubit:state_transfer",
        "flip a driven qubit from |0> to |1>",
        reference="qenvs.tasks.qubit:pi_pulse",
    )
