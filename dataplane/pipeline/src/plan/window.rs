//! Repair packets per source packet of a window flow.

use recoded_code::theory::window::WindowCode;

/// Inputs of a repair rate.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Basis {
    pub code: WindowCode,
    pub target_loss: f64,
    pub rate_max: f64,
}

/// A rate: repair packets per source packet.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    pub rate: f64,
}

/// Makes a plan.
pub(crate) fn plan(basis: &Basis) -> Plan {
    Plan { rate: basis.code.rate(basis.target_loss, basis.rate_max) }
}
