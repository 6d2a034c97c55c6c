//! `mgp/kernel/console/*`: sessions of the console.

use mgp_callers::request::Outcome;
use mgp_engine::doors::console_sessions::LINK_LIFETIME_MS;
use mgp_protocol::mgp::kernel::console::{ConsoleLink, EndResult};
use mgp_protocol::refusal::Refusal;

use crate::operator::{Operator, json};

impl Operator {
    /// `mgp/kernel/console/link`.
    ///
    /// # Errors
    /// Without a console: why, and what to do.
    pub(crate) fn console_link(&self) -> Outcome {
        let link = self.console.create_sign_in_link();
        let url = link.map_err(|why| Refusal::BadParams(why.to_string()))?;
        json(&ConsoleLink {
            url,
            lasts_secs: LINK_LIFETIME_MS / 1000,
        })
    }

    /// `mgp/kernel/console/end`: once answered, no browser is signed in.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) fn close_console_sessions(&self) -> Outcome {
        let browsers = self.console.sign_out_all() as u64;
        json(&EndResult { browsers })
    }
}
