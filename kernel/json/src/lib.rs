//! JSON text that is read and edited without being rebuilt: numbers keep their digits, strings their escapes, members
//! their order.
//!
//! serde_json decides what JSON is. Where its values would lose something, these are the rules:
//!
//! | what is read | by | rules |
//! |---|---|---|
//! | members of an object, to relay or edit | [`members`], [`member`], [`Splice`] | of two with one name each is there; the first is found |
//! | the one member of a name | [`unique_member`] | none where there are several |
//! | a message that the kernel acts on | [`lookalike::from_str`] | one of each name; lookalikes of known names are rejected |
//! | an object in which lookalikes do no harm | [`lookalike::from_object`] | one of each known name |
//! | one name twice, whatever else is there | [`find_duplicate`] | for what readers disagree on: gRPC, states, claims, callbacks |
//! | text that serde_json has accepted, or that is copied whatever it is | [`Tokens`] | nothing is skipped but white space |
//! | a message that is torn or broken, or the start of one | [`partial`] | reads on over whatever can be followed; what is acted on is read whole afterwards |
//! | numbers | [`number`] | compared digit by digit, never as doubles |
//! | a name somewhere in a text, quickly | [`can_contain_string`] | never misses it; may be wrong the other way |
//!
//! Nothing here recurses, so no depth is too deep for it: readers that recurse over [`Tokens`] bring a bound of their own.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod duplicates;
pub mod lookalike;
pub mod number;
mod object;
pub mod partial;
mod splice;
mod string;
mod string_search;
mod tokens;

pub use duplicates::find_duplicate;
pub use object::{elements, member, members, render_object, unique_member};
pub use splice::{Splice, remove_members, set_members};
pub use string::{quote, string_end, unescape, unquote};
pub use string_search::can_contain_string;
pub use tokens::{Token, Tokens};
