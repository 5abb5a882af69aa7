//! Repair, seen from outside: JSON that is none, values and their schemas, thoughts, structured calls, histories.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod history;
#[cfg(test)]
mod json_repair;
#[cfg(test)]
mod merged;
mod names;
#[cfg(test)]
mod reasoning;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod types;
#[cfg(test)]
mod wire;
