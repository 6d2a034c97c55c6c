//! The tools a lite caller learns of: in its list, and as suggestions for an unknown name.

use bytes::Bytes;
use mgp_engine::doors::suggestions::nearest_name;
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::quote;
use mgp_protocol::ids::AgentId;
use mgp_protocol::lite::REDEEM;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind, LiteRefusal};
use mgp_protocol::lite::tool_list::{self, ToolPage};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::trace::Trace;
use tokio::sync::mpsc;

use super::{Lite, LiteCaller};

/// Pages read of one list: a hundred times more than the largest catalog has.
const PAGES_MAX: usize = 10_000;
/// Letters by which a name may be longer or shorter than the suggested one.
const LENGTH_DIFFERENCE_MAX: usize = 2;

impl Lite {
    /// The tools that this agent is shown in this view, `redeem` first, as JSON text: `{"tools":[…]}`.
    ///
    /// # Errors
    /// That the list cannot be had.
    pub(crate) async fn list_tools(
        &self,
        agent: &AgentId,
        view: &CatalogView,
    ) -> Result<Bytes, LiteError> {
        let who = LiteCaller {
            agent: agent.clone(),
            view: view.clone(),
        };
        let mut tools = Vec::new();
        let each = |definition: &str| tools.extend(tool_list::to_lite_tool(definition));
        self.for_each_tool(&who, each).await?;
        Ok(tool_list::render_list(&tools).into())
    }

    /// The error for a tool that is not there, or not for this caller: with names of those that it may call, listed or
    /// not.
    pub(super) async fn unknown_tool_error(&self, who: &LiteCaller, name: &str) -> LiteError {
        let mut names = vec![REDEEM.to_owned()];
        match self.callable_tools(who).await {
            Ok(callable) => names.extend(callable),
            Err(error) => return error,
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Others are no slips of it; comparing a long name with each of many tools would take its time.
        let near = names.iter().copied().filter(|known| {
            let alike = known.len().abs_diff(name.len()) <= LENGTH_DIFFERENCE_MAX;
            alike || known.starts_with(name) || name.starts_with(known)
        });
        let meant = nearest_name(name, near);
        LiteError::tool_not_found(name, &names, meant)
    }

    async fn callable_tools(&self, who: &LiteCaller) -> Result<Vec<String>, LiteError> {
        let (outlet, _unread) = mpsc::channel(1);
        let opened = self.open_request(
            who,
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

    /// Reads every page of the list.
    async fn for_each_tool(
        &self,
        who: &LiteCaller,
        mut each: impl FnMut(&str),
    ) -> Result<(), LiteError> {
        let mut params = "{}".to_owned();
        for _ in 0..PAGES_MAX {
            let page = self.request(who, "tools/list", &params, None).await;
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
