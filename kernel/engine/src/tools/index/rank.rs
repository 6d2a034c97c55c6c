//! Scores and their order.

mod elsewhere;
mod evidence;
mod lists;
mod scene;
mod spread;

pub use self::evidence::Evidence;
use self::lists::TermLists;
use self::scene::VisibleTools;
use self::spread::Deviation;
use super::request::{IndexSearch, RESULTS_MAX, Strategy, TOLD_WORD};
use super::server_index::ServerIndex;
use super::server_index::spelling::{Guess, Misspelt};
use super::vectors::Vector;
use super::vectors::scan::Probes;
use super::{SearchHit, SearchResults};

/// What a word counts beside the meaning. Both are measured by how far a tool stands out of all
/// others; words alone are trusted a little less.
const WORDS: f32 = 0.4;
/// How much of what its server's best tools reach is added to a tool: a task seldom needs one tool
/// of a server.
const COMPANY: f32 = 0.5;
/// How many tools make the company.
const BEST: usize = 3;
/// How many tools make the crowd that a tool should stand out of, and what it loses where it does not.
const CROWD: usize = 50;
const LIKE_OTHERS: f32 = 0.25;
/// Words stand out by so many spreads at most. A word that a single tool of 100,000 has would
/// otherwise drown every meaning.
const SPREADS_MAX: f32 = 8.0;
/// Words of a request that are guessed at, and guesses taken for each.
const MISSPELT_MAX: usize = 16;
const GUESSES_MAX: usize = 4;
/// Scores at which a tool is shown as half relevant, by words and by both.
const HALF_BY_WORDS: f32 = 10.0;
const HALF_BY_BOTH: f32 = 6.0;

pub(super) fn search<'a>(
    servers: impl Iterator<Item = &'a ServerIndex>,
    search: &IndexSearch<'_>,
) -> SearchResults<'a> {
    let scene = VisibleTools::of(servers, search);
    let ranked = ranked(&scene, search);
    let scores = &ranked.scores;
    let hits = best(scores, search.most.min(RESULTS_MAX));
    let hits = hits.into_iter().filter(|tool| scores[*tool] > 0.0);
    // Who asks for a category wants what stands in it, whatever the words.
    let by_place = ranked.strategy == Strategy::Category || search.request.is_empty();
    let hit = |tool| {
        let evidence = ranked.evidence(tool);
        SearchHit {
            entry: scene.entry(tool),
            score: scores[tool],
            evidence,
            fits: by_place || evidence.fits(),
        }
    };
    SearchResults {
        hits: hits.map(hit).collect(),
        visible: scene.count(),
        strategy: ranked.strategy,
    }
}

/// By what strategy tools were ranked, their scores, from 0 to 1, and what these were made of.
struct Ranked {
    strategy: Strategy,
    scores: Vec<f32>,
    /// None where meaning was not asked for, or is not known.
    like: Option<Vec<f32>>,
    /// Of the whole request; none where words were not asked for.
    words: Option<Vec<f32>>,
}

impl Ranked {
    fn evidence(&self, tool: usize) -> Evidence {
        Evidence {
            likeness: self.like.as_ref().map(|like| known(like[tool])),
            words: self.words.as_ref().map(|words| by_words(words[tool])),
        }
    }
}

/// As it is shown: what is not known is not alike.
fn known(like: f32) -> f32 {
    if like.is_nan() {
        0.0
    } else {
        like.clamp(0.0, 1.0)
    }
}

fn by_words(score: f32) -> f32 {
    score / (score + HALF_BY_WORDS)
}

/// So many tools, the best first. They are numbered by server and by their place in its list: equals
/// stay in that order.
fn best(scores: &[f32], most: usize) -> Vec<usize> {
    let better = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
    let mut tools: Vec<usize> = (0..scores.len()).collect();
    if (1..tools.len()).contains(&most) {
        tools.select_nth_unstable_by(most - 1, better);
    }
    tools.truncate(most);
    tools.sort_unstable_by(better);
    tools
}

fn ranked(scene: &VisibleTools<'_>, search: &IndexSearch<'_>) -> Ranked {
    let like = match search.strategy {
        Strategy::Semantic | Strategy::Hybrid => likeness(scene, search),
        Strategy::Keyword | Strategy::Category => None,
    };
    match (search.strategy, like) {
        (Strategy::Semantic, Some(like)) => Ranked {
            strategy: Strategy::Semantic,
            scores: like.iter().map(|like| known(*like)).collect(),
            like: Some(like),
            words: None,
        },
        (Strategy::Hybrid, Some(like)) => by_both(scene, search, like),
        (strategy, _) => by_words_alone(scene, search, strategy),
    }
}

fn by_both(scene: &VisibleTools<'_>, search: &IndexSearch<'_>, like: Vec<f32>) -> Ranked {
    let lists = lists(scene, search);
    let words = words(scene, &lists, search);
    let mut both = together(&standing_out(&lists, search, &words), &like);
    out_of_the_crowd(scene, &mut both);
    let mut both = with_company(scene, both);
    elsewhere::no_further_than_here(scene, &mut both, &words, &like);
    let score = |score: f32| score.max(0.0) / (score.max(0.0) + HALF_BY_BOTH);
    Ranked {
        strategy: Strategy::Hybrid,
        scores: both.into_iter().map(score).collect(),
        like: Some(like),
        words: Some(words),
    }
}

fn by_words_alone(scene: &VisibleTools<'_>, search: &IndexSearch<'_>, asked: Strategy) -> Ranked {
    let words = words(scene, &lists(scene, search), search);
    // What stands in a category is found there without any word.
    let (strategy, least) = match asked {
        Strategy::Category => (Strategy::Category, f32::EPSILON),
        Strategy::Keyword | Strategy::Semantic | Strategy::Hybrid => (Strategy::Keyword, 0.0),
    };
    let scores = words.iter().map(|score| by_words(*score).max(least));
    Ranked {
        strategy,
        scores: scores.collect(),
        like: None,
        words: Some(words),
    }
}

fn lists(scene: &VisibleTools<'_>, search: &IndexSearch<'_>) -> TermLists {
    let whole = search.request.words.iter().map(|(term, _)| *term);
    let told = search.request.told.iter().copied();
    let parts = search.request.parts.iter().flatten().map(|(term, _)| *term);
    TermLists::gather(scene, whole.chain(told).chain(parts))
}

fn words(scene: &VisibleTools<'_>, lists: &TermLists, search: &IndexSearch<'_>) -> Vec<f32> {
    let mut scores = vec![0.0; scene.count()];
    let mut misspelt = Vec::new();
    for (term, word) in &search.request.words {
        let worth = lists.worth(*term);
        if worth.len() == 0 {
            misspelt.extend(Misspelt::read(word));
        }
        worth.for_each(|(tool, worth)| scores[tool] += worth);
    }
    for term in &search.request.told {
        let worth = lists.worth(*term);
        worth.for_each(|(tool, worth)| scores[tool] += TOLD_WORD * worth);
    }
    misspelt.truncate(MISSPELT_MAX);
    let guesses = guesses(scene, &misspelt);
    let lists = TermLists::gather(scene, guesses.iter().map(|guess| guess.term));
    for guess in guesses {
        let share = 1.0 / (1 + guess.distance) as f32;
        let worth = lists.worth(guess.term);
        worth.for_each(|(tool, worth)| scores[tool] += share * worth);
    }
    scores
}

/// What these words may be meant to be, the likeliest of each.
fn guesses(scene: &VisibleTools<'_>, misspelt: &[Misspelt]) -> Vec<Guess> {
    let mut guesses = vec![Vec::new(); misspelt.len()];
    for view in scene.views() {
        let seen = |tool| scene.number(view, tool).is_some();
        for (word, guesses) in misspelt.iter().zip(&mut guesses) {
            guesses.extend(view.server.names.near(word, seen));
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
fn likeness(scene: &VisibleTools<'_>, search: &IndexSearch<'_>) -> Option<Vec<f32>> {
    let texts = search.request.told_meanings(search.meanings)?;
    let whole = Vector::middle(texts.iter().map(|(meaning, length)| (meaning, *length)))?;
    let parts = texts.into_iter().take(search.request.parts.len());
    let parts = parts.map(|(meaning, _)| meaning);
    let probes = Probes::of(&std::iter::once(whole).chain(parts).collect::<Vec<_>>())?;
    let mut columns = scene.likeness(&probes).into_iter();
    let mut like = columns.next()?;
    if like.iter().all(|like| like.is_nan()) {
        return None;
    }
    let parts: Vec<Vec<f32>> = columns.collect();
    if !parts.is_empty() {
        mix_in(&parts, &mut like);
    }
    elsewhere::no_liker_than_here(scene, &mut like);
    Some(like)
}

/// Half of it by the whole and half by the part that a tool fits best. Parts are held against each
/// other by how far a tool stands out: a vague one is a little like everything.
fn mix_in(parts: &[Vec<f32>], like: &mut [f32]) {
    let mut best = vec![f32::NAN; like.len()];
    for part in parts {
        let spread = Deviation::of(part);
        for (best, part) in best.iter_mut().zip(part) {
            *best = best.max(spread.of_number(*part));
        }
    }
    let (of_best, of_like) = (Deviation::of(&best), Deviation::of(like));
    for (like, best) in like.iter_mut().zip(best) {
        let best = of_like.mean + of_like.spread * of_best.of_number(best);
        *like = (*like + best) / 2.0;
    }
}

/// Words as how far a tool stands out by them: half by those of the whole, half by those of the part
/// that fits it best.
fn standing_out(lists: &TermLists, search: &IndexSearch<'_>, words: &[f32]) -> Vec<f32> {
    let mut whole = words.to_vec();
    in_spreads(&mut whole);
    if search.request.parts.is_empty() {
        return whole;
    }
    let mut best = vec![0.0_f32; whole.len()];
    let mut sums = vec![0.0_f32; whole.len()];
    for part in &search.request.parts {
        // Few tools have a word of a part, and only these are looked at.
        let mut touched = Vec::new();
        for (term, counts) in part {
            for (tool, worth) in lists.worth(*term) {
                if sums[tool] == 0.0 {
                    touched.push(tool);
                }
                sums[tool] += counts * worth;
            }
        }
        let few = touched.iter().map(|tool| sums[*tool]);
        let spread = unit(Deviation::of_few(few.clone(), whole.len()), few);
        for tool in touched {
            best[tool] = best[tool].max(sums[tool] / spread);
            sums[tool] = 0.0;
        }
    }
    in_spreads(&mut best);
    for (whole, best) in whole.iter_mut().zip(best) {
        *whole = (*whole + best) / 2.0;
    }
    whole
}

fn in_spreads(words: &mut [f32]) {
    let unit = unit(Deviation::of(words), words.iter().copied());
    for words in words {
        *words /= unit;
    }
}

/// What a spread of words is divided by.
fn unit(spread: Deviation, words: impl Iterator<Item = f32>) -> f32 {
    let most = words.fold(0.0_f32, f32::max);
    spread.spread.max(most / SPREADS_MAX)
}

/// What is like all the others that fit tells little of what sets the request apart: a tool loses by
/// how like it is to the middle of those that fit best. All that are not among these lose as much as
/// who loses most, so that none gets ahead by not having been looked at.
fn out_of_the_crowd(scene: &VisibleTools<'_>, scores: &mut [f32]) {
    let crowd = best(&with_company(scene, scores.to_vec()), CROWD);
    let vectors: Vec<Option<Vector>> = crowd.iter().map(|tool| scene.vector(*tool)).collect();
    let known = vectors.iter().flatten();
    let Some(middle) = Vector::middle(known.map(|vector| (vector, 1.0))) else {
        return;
    };
    let like = |vector: &Option<Vector>| vector.as_ref().map_or(f32::NAN, |v| v.likeness(&middle));
    let like: Vec<f32> = vectors.iter().map(like).collect();
    let spread = Deviation::of(&like);
    let losses = like.iter().map(|like| LIKE_OTHERS * spread.of_known(*like));
    let losses: Vec<f32> = losses.collect();
    let most = losses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for score in &mut *scores {
        *score -= most;
    }
    for (tool, loss) in crowd.into_iter().zip(losses) {
        scores[tool] += most - loss;
    }
}

fn with_company(scene: &VisibleTools<'_>, mut scores: Vec<f32>) -> Vec<f32> {
    for view in scene.views() {
        let scores = &mut scores[view.seen()];
        let mut best = [f32::NEG_INFINITY; BEST];
        for score in &*scores {
            let at = best.partition_point(|better| better >= score);
            if at < BEST {
                best[at..].rotate_right(1);
                best[at] = *score;
            }
        }
        let best = best.iter().filter(|score| score.is_finite());
        let company = best.clone().sum::<f32>() / best.count().max(1) as f32;
        for score in scores {
            *score += COMPANY * company;
        }
    }
    scores
}

/// Both. Only what words speak for a tool counts: that they do not is no reason against it.
fn together(words: &[f32], like: &[f32]) -> Vec<f32> {
    let mut spread = Deviation::of(like);
    // What is alone, or all alike, stands out of nothing: then it counts how like it is.
    let unlike = |like: &f32| (like - spread.mean).abs() >= 1e-6;
    if !like.iter().any(unlike) {
        spread.mean = 0.0;
    }
    let both = words.iter().zip(like);
    both.map(|(words, like)| WORDS * words + spread.of_known(*like))
        .collect()
}
