//! Which tools a lite caller is told of: in its list, and where it asks for one that is not there.

use bytes::Bytes;
use mgp_engine::doors::nearest::nearest_name;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::AgentId;
use mgp_protocol::lite::REDEEM;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind, LiteRefusal};
use mgp_protocol::lite::listing::{self, ListedPage};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;
use mgp_runtime::trace::Trace;
use tokio::sync::mpsc;

use super::{Lite, LiteCaller};

/// Pages read of one list: a hundred times more than the largest catalog has.
const PAGES_MAX: usize = 10_000;
/// Letters by which a name may be longer or shorter than what was meant.
const SLIPS: usize = 2;

impl Lite {
    /// The tools that this agent is shown in this view, `redeem` first, as JSON text: `{"tools":[…]}`.
    ///
    /// # Errors
    /// That the list cannot be had.
    pub async fn tools(&self, agent: &AgentId, view: &CatalogView) -> Result<Bytes, LiteError> {
        let who = LiteCaller {
            agent: agent.clone(),
            view: view.clone(),
        };
        let mut tools = Vec::new();
        let each = |definition: &str| tools.extend(listing::tool(definition));
        self.each_tool(&who, each).await?;
        Ok(listing::list(&tools).into())
    }

    /// The error for a tool that is not there, or not for this caller: with names of those that it may call, listed or
    /// not.
    pub(super) async fn not_found(&self, who: &LiteCaller, name: &str) -> LiteError {
        let mut names = vec![REDEEM.to_owned()];
        match self.callable(who).await {
            Ok(callable) => names.extend(callable),
            Err(error) => return error,
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Others are no slips of it; comparing a long name with each of many tools would take its time.
        let near = names.iter().copied().filter(|known| {
            let alike = known.len().abs_diff(name.len()) <= SLIPS;
            alike || known.starts_with(name) || name.starts_with(known)
        });
        let meant = nearest_name(name, near);
        LiteError::tool_not_found(name, &names, meant)
    }

    async fn callable(&self, who: &LiteCaller) -> Result<Vec<String>, LiteError> {
        let (outlet, _unread) = mpsc::channel(1);
        let opened = self.open(who, ("tools/list", "{}"), outlet, (false, Trace::minted()));
        let caller = opened.map_err(|refusal| told(&refusal))?.caller().clone();
        let pages = self.stateless.routes.all_tools(caller).await;
        let pages = pages.map_err(|refusal| told(&refusal))?;
        let mut names = Vec::new();
        for page in &pages {
            let page = String::from_utf8_lossy(page);
            let page = ListedPage::read(&page);
            names.extend(
                page.tools
                    .iter()
                    .filter_map(|tool| listing::name_of(tool.get())),
            );
        }
        Ok(names)
    }

    /// Reads every page of the list.
    async fn each_tool(
        &self,
        who: &LiteCaller,
        mut each: impl FnMut(&str),
    ) -> Result<(), LiteError> {
        let mut params = "{}".to_owned();
        for _ in 0..PAGES_MAX {
            let page = self.ask(who, "tools/list", &params, None).await;
            let page = page.map_err(|refusal| told(&refusal))?;
            let page = String::from_utf8_lossy(&page);
            let page = ListedPage::read(&page);
            for tool in &page.tools {
                each(tool.get());
            }
            match page.next {
                Some(next) => params = format!(r#"{{"cursor":{}}}"#, quoted(&next)),
                None => break,
            }
        }
        Ok(())
    }
}

fn told(refusal: &Refusal) -> LiteError {
    match LiteRefusal::of(refusal) {
        LiteRefusal::Error(error) => error,
        LiteRefusal::Failure(_) => LiteError::new(LiteErrorKind::Internal, refusal.to_string()),
    }
}
