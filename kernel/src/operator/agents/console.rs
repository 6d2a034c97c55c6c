//! `mgp/kernel/console/*`: who is signed in to the console.

use mgp_callers::request::Outcome;
use mgp_engine::doors::console::LINK_MS;
use mgp_protocol::mgp::kernel::console::{ConsoleLink, Ended};
use mgp_protocol::refusal::Refusal;

use crate::operator::{Operator, json};

impl Operator {
    /// `mgp/kernel/console/link`.
    ///
    /// # Errors
    /// Where there is no console: why, and what to do.
    pub fn console_link(&self) -> Outcome {
        let link = self.console.link();
        let url = link.map_err(|why| Refusal::BadParams(why.to_string()))?;
        json(&ConsoleLink {
            url,
            lasts_secs: LINK_MS / 1000,
        })
    }

    /// `mgp/kernel/console/end`: when it is answered no browser is signed in.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub fn end_console(&self) -> Outcome {
        let browsers = self.console.sign_out_all() as u64;
        json(&Ended { browsers })
    }
}
