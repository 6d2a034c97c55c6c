//! The tools visible to a lite caller: in its list, and as suggestions for an unknown name.

use bytes::Bytes;
use mgp_engine::doors::suggestions::nearest_name;
use mgp_json::quote;
use mgp_protocol::lite::REDEEM;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind, LiteRefusal};
use mgp_protocol::lite::tool_list::{self, ToolPage};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::trace::Trace;
use tokio::sync::mpsc;

use super::{Lite, LiteCaller};

/// The most pages read of one list: a hundred times more than the largest catalog has.
const PAGES_MAX: usize = 10_000;
/// The largest length difference between a name and its suggestion.
const LENGTH_DIFFERENCE_MAX: usize = 2;

impl Lite {
    /// Lists the tools visible to this agent in this view, `redeem` first, as JSON text: `{"tools":[…]}`.
    ///
    /// # Errors
    /// The list is not available.
    pub(crate) async fn list_tools(&self, caller: &LiteCaller) -> Result<Bytes, LiteError> {
        let mut tools = Vec::new();
        let each = |definition: &str| tools.extend(tool_list::to_lite_tool(definition));
        self.for_each_tool(caller, each).await?;
        Ok(tool_list::render_list(&tools).into())
    }

    /// The error for a tool that does not exist or is hidden: with the names of callable tools, listed or
    /// not.
    pub(super) async fn unknown_tool_error(&self, caller: &LiteCaller, name: &str) -> LiteError {
        let mut names = vec![REDEEM.to_owned()];
        match self.callable_tools(caller).await {
            Ok(callable) => names.extend(callable),
            Err(error) => return error,
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Other names are no typos of it; comparing a long name with each of many tools would take long.
        let similar = names.iter().copied().filter(|known| {
            let alike = known.len().abs_diff(name.len()) <= LENGTH_DIFFERENCE_MAX;
            alike || known.starts_with(name) || name.starts_with(known)
        });
        let suggestion = nearest_name(name, similar);
        LiteError::tool_not_found(name, &names, suggestion)
    }

    async fn callable_tools(&self, caller: &LiteCaller) -> Result<Vec<String>, LiteError> {
        let (outlet, _unread) = mpsc::channel(1);
        let opened = self.open_request(
            caller,
            ("tools/list", "{}"),
            outlet,
            (false, Trace::generate()),
        );
        let caller = opened
            .map_err(|refusal| to_lite_error(&refusal))?
            .caller()
            .clone();
        let pages = self.stateless.routes.all_tools(caller).await;
        let pages = pages.map_err(|refusal| to_lite_error(&refusal))?;
        let mut names = Vec::new();
        for page in &pages {
            let page = String::from_utf8_lossy(page);
            let page = ToolPage::parse(&page);
            names.extend(
                page.tools
                    .iter()
                    .filter_map(|tool| tool_list::tool_name(tool.get())),
            );
        }
        Ok(names)
    }

    /// Calls `each` for every tool on every page of the list.
    async fn for_each_tool(
        &self,
        caller: &LiteCaller,
        mut each: impl FnMut(&str),
    ) -> Result<(), LiteError> {
        let mut params = "{}".to_owned();
        for _ in 0..PAGES_MAX {
            let page = self.request(caller, "tools/list", &params, None).await;
            let page = page.map_err(|refusal| to_lite_error(&refusal))?;
            let page = String::from_utf8_lossy(&page);
            let page = ToolPage::parse(&page);
            for tool in &page.tools {
                each(tool.get());
            }
            match page.next {
                Some(next) => params = format!(r#"{{"cursor":{}}}"#, quote(&next)),
                None => break,
            }
        }
        Ok(())
    }
}

fn to_lite_error(refusal: &Refusal) -> LiteError {
    match LiteRefusal::from_refusal(refusal) {
        LiteRefusal::Error(error) => error,
        LiteRefusal::Failure(_) => LiteError::new(LiteErrorKind::Internal, refusal.to_string()),
    }
}
