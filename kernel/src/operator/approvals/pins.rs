//! `mgp/servers/pins/*`: pinned definitions and their changes.

use mgp_callers::request::{Outcome, Request};
use mgp_engine::policy::pins::{PinMode, PinnedTool};
use mgp_protocol::mgp::servers::pins::{self, Definitions, PAGE_MAX, PinnedTools};
use mgp_protocol::refusal::Refusal;

use crate::operator::{Operator, json, read};

impl Operator {
    /// `mgp/servers/pins/list`.
    ///
    /// # Errors
    /// Unknown server; its pins cannot be read.
    pub(crate) async fn list_pins(&self, request: &Request) -> Outcome {
        let pins::List { id, after, limit } = read(request)?;
        let handle = self.find_server(&id)?;
        let limit = limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let page = self.pins.list(&handle.id, after, limit).await;
        let page = page.map_err(Refusal::Internal)?;
        json(&PinnedTools {
            mode: page.mode.map(mode_label),
            total: page.total as u64,
            pins: page.tools.into_iter().map(to_protocol_pin).collect(),
            has_more: page.has_more,
        })
    }

    /// `mgp/servers/pins/show`.
    ///
    /// # Errors
    /// As of [`Self::list_pins`].
    pub(crate) async fn show_pin(&self, request: &Request) -> Outcome {
        let pins::Show { id, tool } = read(request)?;
        let handle = self.find_server(&id)?;
        let pair = self.pins.definitions(&handle.id, tool).await;
        let pair = pair.map_err(Refusal::Internal)?;
        json(&Definitions {
            approved: pair.approved,
            now: pair.current.map(|tool| tool.raw.to_string()),
        })
    }
}

fn mode_label(mode: PinMode) -> String {
    match mode {
        PinMode::Off => "off",
        PinMode::Warn => "warn",
        PinMode::Block => "block",
    }
    .into()
}

fn to_protocol_pin(pin: PinnedTool) -> pins::PinnedTool {
    pins::PinnedTool {
        tool: pin.tool,
        pin: pin.approved.to_string(),
        approved_by: pin.approved_by,
        now: pin.pending.map(|pin| pin.to_string()),
        changed: pin.changed.iter().map(ToString::to_string).collect(),
        denied: pin.denied,
    }
}
