//! Checks data before it leaves the kernel: the arguments of calls, the code in them (MGP §4.5, §7),
//! the conditions on grants, and the text of servers on its way to clients.
//!
//! Pure like the engine: text in, verdict out.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod code_safety;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "values and expressions of any other kind are all alike there: a fault, or nothing to explain"
)]
pub mod conditions;
pub mod definitions;
pub mod masks;
pub mod results;
pub mod scopes;
mod validators;
mod variables;

// Validates a call's arguments before they leave the kernel (MGP §4.5, §8.2).
pub use self::validators::{
    BlockedArgument, ScreenedCall, ScreeningRejection, Validator, Validators, check_start_command,
    has_known_role, is_code_argument, is_trivially_safe,
};

// Variables that nobody else may set for a program.
pub use self::variables::is_reserved_variable;
