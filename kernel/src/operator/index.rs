//! `mgp/index/*`: the index of all tools.

use mgp_callers::request::{Outcome, Request};
use mgp_calls::{Context, name_sources, skills};
use mgp_engine::policy::access::Principal;
use mgp_engine::tool_names::canonical_name;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::index::{RESULTS_MAX, SearchFilter, Strategy};
use mgp_json::member;
use mgp_protocol::mgp::index::{IndexCoverage, Search, SearchResult, Tool};
use mgp_protocol::mgp::tools::SkillMatch;
use mgp_protocol::refusal::Refusal;
use mgp_tools::search::{Hit, ServerStatusFilter, ToolQuery, ToolSearchResult};
use serde_json::value::RawValue;

use super::{Operator, read};

/// Results by default (§16.5).
const DEFAULT_RESULTS: usize = 5;

impl Operator {
    /// `mgp/index/search`.
    ///
    /// # Errors
    /// An unknown strategy or agent; too many concurrent searches.
    pub(crate) async fn search(&self, calls: &Context, request: &Request) -> Outcome {
        let search: Search = read(request)?;
        let principal = match &search.agent {
            Some(name) => {
                let agent = name_sources::require_name(
                    self.name_sources.name_resolver().resolve_agent(name),
                    false,
                )?;
                Principal::Agent(agent.value)
            }
            None => request.caller.identity(),
        };
        let words = search.query.clone();
        let (skills, found) = tokio::join!(
            skills::search(calls, request, &principal, &words),
            self.search.search(&principal, parse_query(search)?)
        );
        super::json(&self.search_result(&found?, skills))
    }

    fn search_result(&self, found: &ToolSearchResult, skills: Vec<SkillMatch>) -> SearchResult {
        SearchResult {
            tools: found.hits.iter().map(to_protocol_tool).collect(),
            skills,
            total_available: found.visible,
            search_strategy: found.strategy.as_str().to_owned(),
            query_time_ms: found.duration.as_secs_f64() * 1e3,
            note: found.remark(),
            index: self.coverage(),
        }
    }

    /// The progress of indexing.
    pub(super) fn coverage(&self) -> IndexCoverage {
        let coverage = self.search.coverage();
        IndexCoverage {
            tools: coverage.tools,
            by_meaning: coverage.by_meaning,
            waiting: coverage.pending_texts,
            embedded: coverage.embedded,
            model_process: coverage.running.process,
            model_failures: coverage.running.failures,
        }
    }
}

fn parse_query(search: Search) -> Result<ToolQuery, Refusal> {
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
        filter: SearchFilter {
            categories: search.categories,
            risk_max: search.risk_level_max,
        },
        status: ServerStatusFilter::Connected,
        view: CatalogView::All,
        limit: search
            .max_results
            .unwrap_or(DEFAULT_RESULTS)
            .min(RESULTS_MAX),
    })
}

fn to_protocol_tool(hit: &Hit) -> Tool {
    let entry = &hit.entry;
    let description = member(&entry.raw, "description");
    let description = description.and_then(|text| serde_json::from_str(text).ok());
    let schema = member(&entry.raw, "inputSchema");
    let schema = schema.and_then(|schema| RawValue::from_string(schema.to_owned()).ok());
    Tool {
        tool_id: canonical_name(&entry.server, &entry.name),
        server_id: entry.server.to_string(),
        name: entry.name.to_string(),
        description: description.unwrap_or_default(),
        relevance_score: hit.score,
        fits: hit.is_good_match,
        risk_level: entry.risk,
        categories: entry.categories.iter().map(ToString::to_string).collect(),
        input_schema: schema,
    }
}
