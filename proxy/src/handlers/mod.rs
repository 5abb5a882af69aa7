//! What the routes lead to: what goes to backends ([`forward`]) and what the proxy answers itself ([`ops`]).

pub(crate) mod forward;
pub(crate) mod ops;
