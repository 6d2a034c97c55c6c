//! Scores and their order.

mod deviation;
mod evidence;
mod remote_tools;
mod term_lists;
mod visible_tools;

use self::deviation::Deviation;
pub use self::evidence::Evidence;
use self::term_lists::TermLists;
use self::visible_tools::VisibleTools;
use super::request::{IndexSearch, RESULTS_MAX, SYNONYM_WORD_WEIGHT, Strategy};
use super::server_index::ServerIndex;
use super::server_index::spelling::{MisspelledWord, SpellingGuess};
use super::vectors::Vector;
use super::vectors::scan::Probes;
use super::{SearchHit, SearchResults};

/// What a word counts beside the meaning. Both are measured by how far a tool stands out of all
/// others; words alone are trusted a little less.
const WORD_WEIGHT: f32 = 0.4;
/// How much of what its server's best tools reach is added to a tool: a task seldom needs one tool
/// of a server.
const SERVER_WEIGHT: f32 = 0.5;
/// How many tools make the company.
const SERVER_TOP_TOOLS: usize = 3;
/// How many tools make the crowd that a tool should stand out of, and what it loses where it does not.
const CENTROID_TOOLS: usize = 50;
const CENTROID_PENALTY: f32 = 0.25;
/// Words stand out by so many spreads at most. A word that a single tool of 100,000 has would
/// otherwise drown every meaning.
const DEVIATIONS_MAX: f32 = 8.0;
/// Words of a request that are guessed at, and guesses taken for each.
const MISSPELLED_MAX: usize = 16;
const GUESSES_MAX: usize = 4;
/// Scores at which a tool is shown as half relevant, by words and by both.
const HALF_SCORE_WORDS: f32 = 10.0;
const HALF_SCORE_HYBRID: f32 = 6.0;

pub(super) fn search<'a>(
    servers: impl Iterator<Item = &'a ServerIndex>,
    search: &IndexSearch<'_>,
) -> SearchResults<'a> {
    let scene = VisibleTools::new(servers, search);
    let ranked = rank(&scene, search);
    let scores = &ranked.scores;
    let hits = top_tools(scores, search.limit.min(RESULTS_MAX));
    let hits = hits.into_iter().filter(|tool| scores[*tool] > 0.0);
    // Who asks for a category wants what stands in it, whatever the words.
    let by_place = ranked.strategy == Strategy::Category || search.request.is_empty();
    let hit = |tool| {
        let evidence = ranked.evidence(tool);
        SearchHit {
            entry: scene.entry(tool),
            score: scores[tool],
            evidence,
            is_match: by_place || evidence.is_match(),
        }
    };
    SearchResults {
        hits: hits.map(hit).collect(),
        visible: scene.count(),
        strategy: ranked.strategy,
    }
}

/// By what strategy tools were ranked, their scores, from 0 to 1, and what these were made of.
struct Ranking {
    strategy: Strategy,
    scores: Vec<f32>,
    /// None where meaning was not asked for, or is not known.
    similarities: Option<Vec<f32>>,
    /// Of the whole request; none where words were not asked for.
    word_scores: Option<Vec<f32>>,
}

impl Ranking {
    fn evidence(&self, tool: usize) -> Evidence {
        Evidence {
            similarity: self
                .similarities
                .as_ref()
                .map(|like| known_similarity(like[tool])),
            word_score: self
                .word_scores
                .as_ref()
                .map(|words| normalize_word_score(words[tool])),
        }
    }
}

/// As it is shown: what is not known is not alike.
fn known_similarity(like: f32) -> f32 {
    if like.is_nan() {
        0.0
    } else {
        like.clamp(0.0, 1.0)
    }
}

fn normalize_word_score(score: f32) -> f32 {
    score / (score + HALF_SCORE_WORDS)
}

/// So many tools, the best first. They are numbered by server and by their place in its list: equals
/// stay in that order.
fn top_tools(scores: &[f32], most: usize) -> Vec<usize> {
    let better = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
    let mut tools: Vec<usize> = (0..scores.len()).collect();
    if (1..tools.len()).contains(&most) {
        tools.select_nth_unstable_by(most - 1, better);
    }
    tools.truncate(most);
    tools.sort_unstable_by(better);
    tools
}

fn rank(scene: &VisibleTools<'_>, search: &IndexSearch<'_>) -> Ranking {
    let like = match search.strategy {
        Strategy::Semantic | Strategy::Hybrid => score_similarity(scene, search),
        Strategy::Keyword | Strategy::Category => None,
    };
    match (search.strategy, like) {
        (Strategy::Semantic, Some(like)) => Ranking {
            strategy: Strategy::Semantic,
            scores: like.iter().map(|like| known_similarity(*like)).collect(),
            similarities: Some(like),
            word_scores: None,
        },
        (Strategy::Hybrid, Some(like)) => rank_hybrid(scene, search, like),
        (strategy, _) => rank_by_words(scene, search, strategy),
    }
}

fn rank_hybrid(scene: &VisibleTools<'_>, search: &IndexSearch<'_>, like: Vec<f32>) -> Ranking {
    let lists = gather_term_lists(scene, search);
    let words = score_words(scene, &lists, search);
    let mut both = combine_scores(&word_deviations(&lists, search, &words), &like);
    penalize_common_tools(scene, &mut both);
    let mut both = add_server_scores(scene, both);
    remote_tools::cap_remote_scores(scene, &mut both, &words, &like);
    let score = |score: f32| score.max(0.0) / (score.max(0.0) + HALF_SCORE_HYBRID);
    Ranking {
        strategy: Strategy::Hybrid,
        scores: both.into_iter().map(score).collect(),
        similarities: Some(like),
        word_scores: Some(words),
    }
}

fn rank_by_words(scene: &VisibleTools<'_>, search: &IndexSearch<'_>, asked: Strategy) -> Ranking {
    let words = score_words(scene, &gather_term_lists(scene, search), search);
    // What stands in a category is found there without any word.
    let (strategy, least) = match asked {
        Strategy::Category => (Strategy::Category, f32::EPSILON),
        Strategy::Keyword | Strategy::Semantic | Strategy::Hybrid => (Strategy::Keyword, 0.0),
    };
    let scores = words
        .iter()
        .map(|score| normalize_word_score(*score).max(least));
    Ranking {
        strategy,
        scores: scores.collect(),
        similarities: None,
        word_scores: Some(words),
    }
}

fn gather_term_lists(scene: &VisibleTools<'_>, search: &IndexSearch<'_>) -> TermLists {
    let whole = search.request.words.iter().map(|(term, _)| *term);
    let told = search.request.synonym_terms.iter().copied();
    let parts = search
        .request
        .clauses
        .iter()
        .flatten()
        .map(|(term, _)| *term);
    TermLists::gather(scene, whole.chain(told).chain(parts))
}

fn score_words(scene: &VisibleTools<'_>, lists: &TermLists, search: &IndexSearch<'_>) -> Vec<f32> {
    let mut scores = vec![0.0; scene.count()];
    let mut misspelt = Vec::new();
    for (term, word) in &search.request.words {
        let worth = lists.weights(*term);
        if worth.len() == 0 {
            misspelt.extend(MisspelledWord::parse(word));
        }
        worth.for_each(|(tool, worth)| scores[tool] += worth);
    }
    for term in &search.request.synonym_terms {
        let worth = lists.weights(*term);
        worth.for_each(|(tool, worth)| scores[tool] += SYNONYM_WORD_WEIGHT * worth);
    }
    misspelt.truncate(MISSPELLED_MAX);
    let guesses = guess_spelling(scene, &misspelt);
    let lists = TermLists::gather(scene, guesses.iter().map(|guess| guess.term));
    for guess in guesses {
        let share = 1.0 / (1 + guess.distance) as f32;
        let worth = lists.weights(guess.term);
        worth.for_each(|(tool, worth)| scores[tool] += share * worth);
    }
    scores
}

/// What these words may be meant to be, the likeliest of each.
fn guess_spelling(scene: &VisibleTools<'_>, misspelt: &[MisspelledWord]) -> Vec<SpellingGuess> {
    let mut guesses = vec![Vec::new(); misspelt.len()];
    for view in scene.servers() {
        let seen = |tool| scene.number(view, tool).is_some();
        for (word, guesses) in misspelt.iter().zip(&mut guesses) {
            guesses.extend(view.server.names.find_near(word, seen));
        }
    }
    for guesses in &mut guesses {
        guesses.sort_unstable();
        guesses.dedup();
        guesses.truncate(GUESSES_MAX);
    }
    guesses.concat()
}

/// How like each tool is to what is looked for, no number where a tool has no vector; `None` when
/// what is looked for has none, or no tool has.
fn score_similarity(scene: &VisibleTools<'_>, search: &IndexSearch<'_>) -> Option<Vec<f32>> {
    let texts = search.request.query_vectors(search.vectors)?;
    let whole = Vector::weighted_mean(texts.iter().map(|(meaning, length)| (meaning, *length)))?;
    let parts = texts.into_iter().take(search.request.clauses.len());
    let parts = parts.map(|(meaning, _)| meaning);
    let probes = Probes::from_vectors(&std::iter::once(whole).chain(parts).collect::<Vec<_>>())?;
    let mut columns = scene.similarities(&probes).into_iter();
    let mut like = columns.next()?;
    if like.iter().all(|like| like.is_nan()) {
        return None;
    }
    let parts: Vec<Vec<f32>> = columns.collect();
    if !parts.is_empty() {
        blend_best_clause(&parts, &mut like);
    }
    remote_tools::cap_remote_similarity(scene, &mut like);
    Some(like)
}

/// Half of it by the whole and half by the part that a tool fits best. Parts are held against each
/// other by how far a tool stands out: a vague one is a little like everything.
fn blend_best_clause(parts: &[Vec<f32>], like: &mut [f32]) {
    let mut best = vec![f32::NAN; like.len()];
    for part in parts {
        let spread = Deviation::from_values(part);
        for (best, part) in best.iter_mut().zip(part) {
            *best = best.max(spread.z_score(*part));
        }
    }
    let (of_best, of_like) = (Deviation::from_values(&best), Deviation::from_values(like));
    for (like, best) in like.iter_mut().zip(best) {
        let best = of_like.mean + of_like.deviation * of_best.z_score(best);
        *like = (*like + best) / 2.0;
    }
}

/// Words as how far a tool stands out by them: half by those of the whole, half by those of the part
/// that fits it best.
fn word_deviations(lists: &TermLists, search: &IndexSearch<'_>, words: &[f32]) -> Vec<f32> {
    let mut whole = words.to_vec();
    scale_by_deviation(&mut whole);
    if search.request.clauses.is_empty() {
        return whole;
    }
    let mut best = vec![0.0_f32; whole.len()];
    let mut sums = vec![0.0_f32; whole.len()];
    for part in &search.request.clauses {
        // Few tools have a word of a part, and only these are looked at.
        let mut touched = Vec::new();
        for (term, counts) in part {
            for (tool, worth) in lists.weights(*term) {
                if sums[tool] == 0.0 {
                    touched.push(tool);
                }
                sums[tool] += counts * worth;
            }
        }
        let few = touched.iter().map(|tool| sums[*tool]);
        let spread = deviation_unit(Deviation::from_sparse(few.clone(), whole.len()), few);
        for tool in touched {
            best[tool] = best[tool].max(sums[tool] / spread);
            sums[tool] = 0.0;
        }
    }
    scale_by_deviation(&mut best);
    for (whole, best) in whole.iter_mut().zip(best) {
        *whole = (*whole + best) / 2.0;
    }
    whole
}

fn scale_by_deviation(words: &mut [f32]) {
    let unit = deviation_unit(Deviation::from_values(words), words.iter().copied());
    for words in words {
        *words /= unit;
    }
}

/// What a spread of words is divided by.
fn deviation_unit(spread: Deviation, words: impl Iterator<Item = f32>) -> f32 {
    let most = words.fold(0.0_f32, f32::max);
    spread.deviation.max(most / DEVIATIONS_MAX)
}

/// What is like all the others that fit tells little of what sets the request apart: a tool loses by
/// how like it is to the middle of those that fit best. All that are not among these lose as much as
/// who loses most, so that none gets ahead by not having been looked at.
fn penalize_common_tools(scene: &VisibleTools<'_>, scores: &mut [f32]) {
    let crowd = top_tools(&add_server_scores(scene, scores.to_vec()), CENTROID_TOOLS);
    let vectors: Vec<Option<Vector>> = crowd.iter().map(|tool| scene.vector(*tool)).collect();
    let known = vectors.iter().flatten();
    let Some(middle) = Vector::weighted_mean(known.map(|vector| (vector, 1.0))) else {
        return;
    };
    let like =
        |vector: &Option<Vector>| vector.as_ref().map_or(f32::NAN, |v| v.similarity(&middle));
    let like: Vec<f32> = vectors.iter().map(like).collect();
    let spread = Deviation::from_values(&like);
    let losses = like
        .iter()
        .map(|like| CENTROID_PENALTY * spread.z_score_or_zero(*like));
    let losses: Vec<f32> = losses.collect();
    let most = losses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for score in &mut *scores {
        *score -= most;
    }
    for (tool, loss) in crowd.into_iter().zip(losses) {
        scores[tool] += most - loss;
    }
}

fn add_server_scores(scene: &VisibleTools<'_>, mut scores: Vec<f32>) -> Vec<f32> {
    for view in scene.servers() {
        let scores = &mut scores[view.visible_range()];
        let mut best = [f32::NEG_INFINITY; SERVER_TOP_TOOLS];
        for score in &*scores {
            let at = best.partition_point(|better| better >= score);
            if at < SERVER_TOP_TOOLS {
                best[at..].rotate_right(1);
                best[at] = *score;
            }
        }
        let best = best.iter().filter(|score| score.is_finite());
        let company = best.clone().sum::<f32>() / best.count().max(1) as f32;
        for score in scores {
            *score += SERVER_WEIGHT * company;
        }
    }
    scores
}

/// Both. Only what words speak for a tool counts: that they do not is no reason against it.
fn combine_scores(words: &[f32], like: &[f32]) -> Vec<f32> {
    let mut spread = Deviation::from_values(like);
    // What is alone, or all alike, stands out of nothing: then it counts how like it is.
    let unlike = |like: &f32| (like - spread.mean).abs() >= 1e-6;
    if !like.iter().any(unlike) {
        spread.mean = 0.0;
    }
    let both = words.iter().zip(like);
    both.map(|(words, like)| WORD_WEIGHT * words + spread.z_score_or_zero(*like))
        .collect()
}
