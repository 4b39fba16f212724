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
    register(
        "battery/TwoLevel-v0",
        "qenvs.tasks.battery:two_level",
        "charge a driven qubit that may touch a thermal bath",
        reference="qenvs.tasks.battery:pi_pulse",
    )
    register(
        "battery/Dicke-v0",
        "qenvs.tasks.battery:dicke",
        "charge cells together from the photons of a cavity",
    )
    register(
        "battery/DickeLocal-v0",
        "qenvs.tasks.battery:dicke_local",
        "charge cells from a cavity while each cell decays and dephases on its own",
    )
    register(
        "transfer/LambdaSTIRAP-v0",
        "qenvs.tasks.transfer:lambda_stirap",
        "carry a Lambda system from |1> to |3> past its lossy level |2>",
        reference="qenvs.tasks.transfer:stirap_pair",
    )
    register(
        "transmon/XGate-v0",
        "qenvs.tasks.transmon:x_gate",
        "implement X on a transmon without leaking to its third level",
        reference="qenvs.tasks.transmon:drag_x",
    )
    register(
        "transmon/SXGate-v0",
        "qenvs.tasks.transmon:sx_gate",
        "implement the square root of X on a transmon",
        reference="qenvs.tasks.transmon:drag_sx",
    )
    register(
        "transmon/CRGate-v0",
        "qenvs.tasks.transmon:cr_gate",
        "implement ZX(pi/2) on two coupled transmons by cross resonance",
        reference="qenvs.tasks.cross_resonance:calibrated_flat_top",
    )
