//! The tool-call corpus against the text parser: whole, at every cut, one character at a time, at random bytes.
//!
//! The comparison is that of the corpus's README. Beside it stand claims that no corpus line can make.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod found;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod long;
#[cfg(test)]
mod mutations;
#[cfg(test)]
mod narrow;
#[cfg(test)]
mod nested;
#[cfg(test)]
mod score;
#[cfg(test)]
mod shown;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod talk;
