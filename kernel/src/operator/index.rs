//! `mgp/index/*`: the index of all tools.

use mgp_callers::request::{Outcome, Request};
use mgp_calls::known_names;
use mgp_engine::policy::access::Principal;
use mgp_engine::tool_names::canonical;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::index::{Filter, RESULTS_MAX, Strategy};
use mgp_protocol::mgp::index::{Coverage, Search, Searched, Tool};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;
use mgp_tools::search::{Hit, ServerStatusFilter, ToolQuery, ToolsFound};
use serde_json::value::RawValue;

use super::{Operator, read};

/// Results when nobody says how many (§16.5).
const RESULTS: usize = 5;

impl Operator {
    /// `mgp/index/search`.
    ///
    /// # Errors
    /// A word that is no strategy, a name that is no agent's; too many searches at once.
    pub async fn search(&self, request: &Request) -> Outcome {
        let search: Search = read(request)?;
        let who = match &search.agent {
            Some(name) => {
                let agent = known_names::read(self.name_sources.known().agent(name), false)?;
                Principal::Agent(agent.it)
            }
            None => request.caller.identity(),
        };
        let found = self.search.search(&who, wanted(search)?).await?;
        super::json(&self.told(&found))
    }

    fn told(&self, found: &ToolsFound) -> Searched {
        Searched {
            tools: found.hits.iter().map(tool).collect(),
            total_available: found.visible,
            search_strategy: found.strategy.as_str().to_owned(),
            query_time_ms: found.took.as_secs_f64() * 1e3,
            note: found.note(),
            index: self.covered(),
        }
    }

    /// How far the index is.
    pub(super) fn covered(&self) -> Coverage {
        let coverage = self.search.coverage();
        Coverage {
            tools: coverage.tools,
            by_meaning: coverage.by_meaning,
            waiting: coverage.waiting,
            embedded: coverage.embedded,
            model_process: coverage.running.process,
            model_failures: coverage.running.failures,
        }
    }
}

fn wanted(search: Search) -> Result<ToolQuery, Refusal> {
    let strategy = search.strategy.as_deref().map(|word| {
        Strategy::parse(word).ok_or_else(|| {
            Refusal::BadParams(format!(
                "`strategy` is keyword, semantic, category or hybrid, not {word:?}"
            ))
        })
    });
    Ok(ToolQuery {
        query: search.query,
        strategy: strategy.transpose()?.unwrap_or(Strategy::Hybrid),
        filter: Filter {
            categories: search.categories,
            risk_max: search.risk_level_max,
        },
        status: ServerStatusFilter::Connected,
        view: CatalogView::All,
        most: search.max_results.unwrap_or(RESULTS).min(RESULTS_MAX),
    })
}

fn tool(hit: &Hit) -> Tool {
    let entry = &hit.entry;
    let description = member(&entry.raw, "description");
    let description = description.and_then(|text| serde_json::from_str(text).ok());
    let schema = member(&entry.raw, "inputSchema");
    let schema = schema.and_then(|schema| RawValue::from_string(schema.to_owned()).ok());
    Tool {
        tool_id: canonical(&entry.server, &entry.name),
        server_id: entry.server.to_string(),
        name: entry.name.to_string(),
        description: description.unwrap_or_default(),
        relevance_score: hit.score,
        fits: hit.fits,
        risk_level: entry.risk,
        categories: entry.categories.iter().map(ToString::to_string).collect(),
        input_schema: schema,
    }
}
