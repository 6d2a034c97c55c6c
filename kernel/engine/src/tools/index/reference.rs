//! A reference model of the ranking, tool by tool and word by word, that tests hold the fast one against.

use std::collections::BTreeMap;

use super::server_index::postings::rarity;
use super::terms::Term;
use super::*;

struct Tool<'a> {
    server: &'a ServerIndex,
    row: usize,
}

/// The scores of all tools that are seen, by words and meaning.
pub(super) fn score_hybrid<'a>(
    index: &'a Index,
    search: &IndexSearch<'_>,
) -> Vec<(&'a IndexedTool, f32)> {
    let mut tools = Vec::new();
    for server in index.servers() {
        for (row, entry) in server.entries().iter().enumerate() {
            if search.filter.matches(entry) && (search.is_visible)(entry) {
                tools.push(Tool { server, row });
            }
        }
    }
    let words = score_words(&tools, search);
    let like = score_similarity(&tools, search);
    let (mean, spread) = mean_and_deviation(&like.iter().flatten().copied().collect::<Vec<_>>());
    let alike = like.iter().flatten().all(|like| (like - mean).abs() < 1e-6);
    let mean = if alike { 0.0 } else { mean };
    let like = like
        .iter()
        .map(|like| like.map_or(0.0, |like| (like - mean) / spread));
    let mut scores: Vec<f32> = words.iter().zip(like).map(|(w, l)| 0.4 * w + l).collect();
    let ranked = add_server_scores(&tools, &scores);
    let mut crowd: Vec<usize> = (0..tools.len()).collect();
    crowd.sort_by(|a, b| ranked[*b].total_cmp(&ranked[*a]));
    crowd.truncate(50);
    let vectors: Vec<Vector> = crowd
        .iter()
        .filter_map(|tool| tools[*tool].vector())
        .collect();
    if let Some(middle) = Vector::mean(&vectors.iter().collect::<Vec<_>>()) {
        let like = crowd
            .iter()
            .map(|tool| Some(tools[*tool].vector()?.similarity(&middle)));
        let like: Vec<Option<f32>> = like.collect();
        let (mean, spread) =
            mean_and_deviation(&like.iter().flatten().copied().collect::<Vec<_>>());
        let loss = |like: &Option<f32>| 0.25 * like.map_or(0.0, |like| (like - mean) / spread);
        let most = like.iter().map(loss).fold(f32::NEG_INFINITY, f32::max);
        for (tool, score) in scores.iter_mut().enumerate() {
            let place = crowd.iter().position(|other| *other == tool);
            *score -= place.map_or(most, |place| loss(&like[place]));
        }
    }
    let scores = add_server_scores(&tools, &scores).into_iter();
    let scores = scores.map(|score| score.max(0.0) / (score.max(0.0) + 6.0));
    tools
        .iter()
        .map(|tool| &tool.server.entries[tool.row])
        .zip(scores)
        .collect()
}

impl Tool<'_> {
    fn vector(&self) -> Option<Vector> {
        self.server.rows.vector(self.row)
    }

    fn term_weight(&self, term: Term) -> Option<f32> {
        let mut tools = self.server.postings.matches(term).iter();
        let having = tools.find(|(tool, _)| *tool as usize == self.row);
        having.map(|(_, worth)| *worth)
    }
}

fn score_words(tools: &[Tool<'_>], search: &IndexSearch<'_>) -> Vec<f32> {
    let of = |terms: &[(Term, f32)]| -> Vec<f32> {
        let mut sums = vec![0.0; tools.len()];
        for (term, counts) in terms {
            let having = tools
                .iter()
                .filter(|tool| tool.term_weight(*term).is_some())
                .count();
            for (sum, tool) in sums.iter_mut().zip(tools) {
                *sum +=
                    counts * tool.term_weight(*term).unwrap_or(0.0) * rarity(tools.len(), having);
            }
        }
        scale_by_deviation(&sums)
    };
    let own = search.request.words.iter().map(|(term, _)| (*term, 1.0));
    let told = search.request.synonym_terms.iter().map(|term| (*term, 0.5));
    let whole = of(&own.chain(told).collect::<Vec<_>>());
    let parts = search.request.clauses.iter();
    let parts: Vec<Vec<f32>> = parts.map(|part| of(part)).collect();
    if parts.is_empty() {
        return whole;
    }
    let best = scale_by_deviation(&highest(&parts, tools.len(), 0.0));
    whole
        .iter()
        .zip(best)
        .map(|(whole, best)| (whole + best) / 2.0)
        .collect()
}

fn score_similarity(tools: &[Tool<'_>], search: &IndexSearch<'_>) -> Vec<Option<f32>> {
    let texts = search.request.query_vectors(search.vectors);
    let texts = texts.expect("a direction");
    let whole = Vector::weighted_mean(texts.iter().map(|(meaning, length)| (meaning, *length)));
    let whole = whole.expect("a direction");
    let of = |meaning: &Vector| -> Vec<Option<f32>> {
        tools
            .iter()
            .map(|tool| Some(tool.vector()?.similarity(meaning)))
            .collect()
    };
    let whole = of(&whole);
    let parts = texts.iter().take(search.request.clauses.len());
    let parts: Vec<Vec<Option<f32>>> = parts.map(|(meaning, _)| of(meaning)).collect();
    if parts.is_empty() {
        return whole;
    }
    let known = |numbers: &[Option<f32>]| numbers.iter().flatten().copied().collect::<Vec<_>>();
    let standing = parts.iter().map(|part| {
        let (mean, spread) = mean_and_deviation(&known(part));
        part.iter()
            .map(|like| like.map_or(f32::NEG_INFINITY, |like| (like - mean) / spread))
            .collect()
    });
    let best = highest(
        &standing.collect::<Vec<_>>(),
        tools.len(),
        f32::NEG_INFINITY,
    );
    let seen: Vec<f32> = best
        .iter()
        .copied()
        .filter(|best| best.is_finite())
        .collect();
    let ((mean, spread), (best_mean, best_spread)) = (
        mean_and_deviation(&known(&whole)),
        mean_and_deviation(&seen),
    );
    let mixed = whole.iter().zip(best).map(|(like, best)| {
        Some((like.as_ref()? + mean + spread * (best - best_mean) / best_spread) / 2.0)
    });
    mixed.collect()
}

fn add_server_scores(tools: &[Tool<'_>], scores: &[f32]) -> Vec<f32> {
    let mut servers: BTreeMap<&ServerId, Vec<f32>> = BTreeMap::new();
    for (tool, score) in tools.iter().zip(scores) {
        servers
            .entry(tool.server.server())
            .or_default()
            .push(*score);
    }
    for best in servers.values_mut() {
        best.sort_by(|a, b| b.total_cmp(a));
        best.truncate(3);
    }
    let company = |tool: &Tool<'_>| {
        let best = &servers[tool.server.server()];
        best.iter().sum::<f32>() / best.len() as f32
    };
    tools
        .iter()
        .zip(scores)
        .map(|(tool, score)| score + company(tool) / 2.0)
        .collect()
}

fn highest(columns: &[Vec<f32>], count: usize, least: f32) -> Vec<f32> {
    let of = |tool: usize| {
        columns
            .iter()
            .map(|column| column[tool])
            .fold(least, f32::max)
    };
    (0..count).map(of).collect()
}

fn scale_by_deviation(words: &[f32]) -> Vec<f32> {
    let (_, spread) = mean_and_deviation(words);
    let most = words.iter().copied().fold(0.0_f32, f32::max);
    words
        .iter()
        .map(|word| word / spread.max(most / 8.0))
        .collect()
}

fn mean_and_deviation(numbers: &[f32]) -> (f32, f32) {
    let count = numbers.len().max(1) as f64;
    let mean = numbers.iter().map(|n| f64::from(*n)).sum::<f64>() / count;
    let apart = numbers
        .iter()
        .map(|n| (f64::from(*n) - mean).powi(2))
        .sum::<f64>();
    let spread = (apart / count).sqrt();
    (mean as f32, if spread < 1e-6 { 1.0 } else { spread as f32 })
}
