//! Reads and edits JSON text without rebuilding it: numbers keep their digits, strings their escapes, members their
//! order.
//!
//! serde_json decides what is valid. Where its values would lose information, these rules apply:
//!
//! | what is read | by | rules |
//! |---|---|---|
//! | members of an object, to relay or edit | [`members`], [`member`], [`Splice`] | duplicates are kept; the first is found |
//! | the one member of a name | [`unique_member`] | none if there are several |
//! | a message that the kernel acts on | [`lookalike::from_str`] | one of each name; lookalikes of known names are rejected |
//! | the same, of text that is part of an accepted message | [`lookalike::from_accepted`] | the same; nothing is validated again |
//! | an object in which lookalikes do no harm | [`lookalike::from_object`] | one of each known name |
//! | duplicate names | [`find_duplicate`] | where readers disagree: gRPC, states, claims, callbacks |
//! | text that serde_json has accepted, or that is copied unchecked | [`Tokens`] | only white space is skipped |
//! | a truncated or broken message | [`partial`] | reads as far as possible; the kernel acts only on a full parse |
//! | numbers | [`number`] | compared digit by digit, never as doubles |
//! | a name, or several, somewhere in a text, quickly | [`can_contain_string`], [`can_contain_strings`] | never misses it; may be wrong the other way |
//!
//! Nothing here recurses, so depth is unlimited: readers that recurse over [`Tokens`] need a bound of their own.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accepted;
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
pub use string_search::{can_contain_string, can_contain_strings};
pub use tokens::{Token, Tokens};
