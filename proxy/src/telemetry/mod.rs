//! What the proxy tells its operator: logs and metrics.

pub(crate) mod log;
pub(crate) mod metrics;
