//! What one era says, said in the words of the other: params, results, errors and questions.
//!
//! Each conversion takes JSON text and gives JSON text; values that it does not have to change stay
//! as they were to the byte. A text that is not of the expected form passes unchanged: whoever reads
//! it says what is wrong with it.

mod content;
mod errors;
mod object;
mod params;
mod questions;
mod results;

pub use errors::error_for;
pub use params::{Stamp, to_legacy_params, to_modern_params};
pub use questions::{
    to_legacy_answer, to_legacy_question, to_modern_question, url_questions, without_call,
};
pub use results::{Modern, to_legacy_result, to_legacy_tool, to_modern_result};
