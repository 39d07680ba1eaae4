//! Which part of a sentence is the request to write something down, and which the statement?
//!
//! Whether a sentence asks at all is judged by [`crate::intent`]. The patterns here only find the words of
//! the request, so that they can be cut off what is to be kept.

use std::ops::Range;

use crate::fold::is_han;
use crate::intent;
use crate::lexicon::mentions;
use crate::pattern::fixed;
use crate::sentence::clauses;

/// A request to write down, as it stands in a folded sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cue {
    /// What belongs to the request and not to the statement.
    pub(crate) ranges: Vec<Range<usize>>,
    /// "记住：" and "write this down:" announce what follows, over several sentences.
    pub(crate) announces: bool,
    /// Nothing of the sentence was recognised as the words of the request.
    pub(crate) is_unworded: bool,
}

fixed!(
    ZH,
    r"(?P<prefix>(?:(?:能不能|能否|可不可以|可以|能|请你?您?|麻烦(?:你|您)?|拜托(?:你|您)?|劳烦|务必|一定要?|千万|要|必须|我要你|我想让你|我希望你|我需要你|希望你|想让你|你|您|帮我|帮忙|给我|替我|为我|帮|先|再|都|也)\s*)*)(?P<core>(?:牢牢|好好)?(?:记住|记下来|记下|记一下|记一记|记一笔|记着|记好|记牢|牢记|谨记|备注(?:一下|上|下来)?|记录(?:一下|下来|在案|进去)?|写下来|写进(?:我的)?(?:档案|病历|记录|备忘录?)|存(?:一下|下来|起来|进去|档)|保存(?:一下|下来|起来)?|登记(?:一下|上|下来)?|标注(?:一下|上)?|标记(?:一下|上)?|注明(?:一下)?|做个(?:记录|笔记|备注|标记)|留个(?:记录|备注|档)|加(?:到|进|入)(?:我的)?(?:档案|病历|记录|备忘录?)|录入(?:一下)?|入档|别忘(?:了|记)?|不要忘(?:了|记)?|勿忘|记得))(?P<suffix>(?:这件事|这个|这一点|这点|这些|以下(?:几点|内容|信息)?|下面(?:的|这些)?(?:内容|信息)?|我的话|一下|哦|啊|吧|呀|了|好吗|行吗|可以吗|谢谢|吗)*)\s*(?P<mark>[:,]?)"
);
fixed!(
    EN,
    r"\b(?P<prefix>(?:(?:can|could|would|will) you (?:please |kindly )?|please,? |pls |plz |kindly |do |also |just |you (?:should|must|need to|have to) |make sure (?:to |you |that you )?|be sure to |i (?:want|need|would like) you to |i'd like you to |always )*)(?P<core>remember(?: that| this| the following)?|note (?:for the future|to self)|note(?: that| this| down(?: that)?| the following)?|take (?:a )?note(?: that| of(?: the following)?)?|take (?:this|that|it) down|make (?:a )?note(?: that| of(?: the following)?)?|make a record(?: of| that)?|write (?:(?:this|that|it) )?down(?: that)?|jot (?:(?:this|that|it) )?down(?: that)?|put (?:this|that|it) (?:down|on (?:file|record)|(?:in|on) my (?:file|record|records|chart|notes|profile))|keep (?:(?:this|that|it) )?(?:on (?:file|record)|in mind)(?: that)?|bear in mind(?: that)?|record (?:this|that|it|the following|in my (?:file|chart|record) that)|save (?:this|that|it)(?: for later| to my \w+)?|store (?:this|that|it)|log (?:this|that|it)|add (?:this|that|it)? ?to my (?:file|record|records|chart|notes|profile)(?: that)?|for the record|for (?:future|your) (?:reference|records?|information|notes)|(?:don't|do not|never) (?:let me )?forget(?: that| about)?|memori[sz]e(?: that| this)?|commit (?:this|that) to memory|mark (?:this|that|it) down|let the record show(?: that)?)\b(?P<suffix>(?:\s+(?:please|for me|somewhere|in your memory|for later))*)\s*(?P<mark>[:,-]?)"
);
// After "remember" these ask what the listener recalls.
fixed!(
    RECALLS,
    r"^\s*(?:when|what|who|where|how|if|whether|why|which|the time|the last|last|me|you|our|anything|everything|seeing|being|our|us|correctly|right)\b"
);
// Before a cue, somebody is told to have written.
fixed!(
    TOLD,
    r"(?:我|我们|他|她|他们|医生|护士|已经?|都|没有?|不|别|会|才|刚刚?|终于|还|怎么|系统|自动|让|叫|被|得|了|需|想|曾|历史|过敏史|病史)\s*$"
);
fixed!(
    ASK_RECALL,
    r"^\s*(?:了吗|了没|吗|没有|得|不住|不了|过|的是|起|错|性|忆|账|号|本|者)"
);
// What may stand before an English cue without a clause end.
fixed!(
    OPENING,
    r"(?:^|[,.;:!?()\x22-]|\b(?:and|but|so|also|then|thanks|ok|okay|hi|hello|hey|doctor|oh|well|yes|no|therefore))\s*$"
);
fixed!(
    FILLER,
    r"(?:好的?|谢谢|嗯|请|哦|啊|吧|一下|这件事|您好|你好|麻烦|拜托|把|ok|okay|thanks|thank you|please|hi|hello|hey|doctor|for me|this|that|it|so|and|pls)"
);

fixed!(
    BACK,
    r"这(?:[个些点事条话]|一[点条]|件事|个情况|段话)?|那[个些点事条]|(?:以上|上面|上述|前面|刚才|刚刚)(?:[说讲]?的?(?:[那这][个些条点句])?)|\b(?:these|those|this|that|it|(?:all of )?the above|(?:what|everything|all) (?:that )?(?:i|i've) (?:just |have just )?(?:said|told you|mentioned))\b"
);
// How much it matters, and nothing else.
fixed!(
    WEIGHT,
    r"(?:是|都|很|非常|特别|最|真的|挺)*(?:重要|关键|要紧)(?:的|啊|呢)?|情况|信息|内容|\b(?:is|are|it's|that's|this is)?\s*(?:very|really|so)?\s*important\b|'s\b|\b(?:all|of|is|are|the|information|info)\b"
);

// What follows is to be kept, not what was said.
fixed!(
    AHEAD,
    r"(?:[件个]|点|些)(?:事情?|东西|信息)|接下来(?:的话)?|下面|以下|如下|下列|我说[,，]?你|我念|我口述|有话|\b(?:something|some things|a (?:few|couple of) things|one thing|the following|what i(?:'m| am) (?:about|going) to(?: say| tell you)?)\b"
);
/// An unworded request that is longer may state something.
const UNWORDED_CHARS_MAX: usize = 70;
/// The same in Chinese.
const UNWORDED_HAN_MAX: usize = 16;

/// Whether a folded sentence with a request says nothing that could be kept: it points to what was said
/// before, or to what follows.
pub(crate) fn only_asks(folded: &str, cue: &Cue) -> bool {
    if cue.is_unworded {
        let is_short = folded.chars().count() <= UNWORDED_CHARS_MAX
            && folded.chars().filter(|c| is_han(*c)).count() <= UNWORDED_HAN_MAX;
        let points = BACK.is_match(folded) || AHEAD.is_match(folded);
        return is_short && points && mentions(folded).is_empty();
    }
    let rest = masked(folded, &cue.ranges);
    let mut rest = AHEAD.replace_all(&rest, "").into_owned();
    for pattern in [&*BACK, &*WEIGHT] {
        rest = pattern.replace_all(&rest, "").into_owned();
    }
    !says_something(&rest)
}

/// Whether a folded text speaks of something that follows.
pub(crate) fn looks_ahead(folded: &str) -> bool {
    AHEAD.is_match(folded)
}

/// The request of a folded sentence, if it makes one.
pub(crate) fn cue(folded: &str) -> Option<Cue> {
    intent::judge(folded).then(|| request(folded))
}

/// The request of a folded sentence, if it makes one: as somebody else has judged, where somebody has.
pub(crate) fn cue_if(folded: &str, asks: Option<bool>) -> Option<Cue> {
    match asks {
        None => cue(folded),
        Some(asks) => asks.then(|| request(folded)),
    }
}

/// Where the request stands in a folded sentence that makes one: in words that a pattern knows, or in
/// clauses that ask by themselves beside others that do not.
pub(crate) fn request(folded: &str) -> Cue {
    if let Some(cue) = worded(folded) {
        return cue;
    }
    let (asking, other): (Vec<_>, Vec<_>) = clauses(folded)
        .into_iter()
        .partition(|clause| intent::judge(&folded[clause.clone()]));
    if asking.is_empty() || other.is_empty() {
        return Cue {
            ranges: Vec::new(),
            announces: false,
            is_unworded: true,
        };
    }
    Cue {
        ranges: asking,
        announces: false,
        is_unworded: false,
    }
}

fn worded(folded: &str) -> Option<Cue> {
    let chinese = ZH
        .captures_iter(folded)
        .find(|hit| is_chinese_request(folded, hit));
    let hit = match chinese {
        Some(hit) => hit,
        None => EN
            .captures_iter(folded)
            .find(|hit| is_english_request(folded, hit))?,
    };
    let whole = hit.get(0)?;
    let mut ranges: Vec<Range<usize>> = Vec::new();
    ranges.push(whole.range());
    // 把 … 这件事记下来
    let before = folded[..whole.start()].trim_end();
    if let Some(at) = folded[..whole.start()].find('把') {
        let is_leading = folded[..at].trim().is_empty()
            || folded[..at].trim_end().ends_with([',', ':'])
            || FILLER.is_match(&folded[..at]);
        if is_leading {
            ranges.push(at..at + '把'.len_utf8());
            for tail in [
                "这件事情",
                "这件事",
                "这个情况",
                "这一点",
                "这点",
                "这事",
                "的事情",
                "的事",
                "这个",
            ] {
                if before.ends_with(tail) {
                    ranges.push(before.len() - tail.len()..before.len());
                    break;
                }
            }
        }
    }
    let announces = hit.name("mark").is_some_and(|m| m.as_str() == ":")
        && before_is_empty(&folded[..whole.start()]);
    Some(Cue {
        ranges,
        announces,
        is_unworded: false,
    })
}

fn before_is_empty(before: &str) -> bool {
    !says_something(before)
}

fn is_chinese_request(folded: &str, hit: &regex::Captures<'_>) -> bool {
    let whole = hit.get(0).expect("a match has a whole");
    let (prefix, core) = (&hit["prefix"], &hit["core"]);
    let before = &folded[..whole.start()];
    let after_core = &folded[hit.name("core").map_or(whole.end(), |m| m.end())..];
    let is_helped = [
        "请", "帮", "麻烦", "拜托", "给我", "替我", "为我", "务必", "千万", "劳烦", "要你", "让你",
        "望你",
    ]
    .iter()
    .any(|word| prefix.contains(word));
    let asks_what_is_kept = ASK_RECALL.is_match(after_core) && !is_helped;
    // 还记得吗, 你记得我的过敏史吗: asked, not told.
    let asks = folded.trim_end().ends_with(['?', '吗', '呢']) && core == "记得" && !is_helped;
    if asks_what_is_kept || asks || (core == "记得" && prefix.contains("都")) {
        return false;
    }
    if is_helped {
        return true;
    }
    if TOLD.is_match(before) || prefix.contains(['都', '也']) && !prefix.contains('要') {
        return false;
    }
    let begins = before.trim().is_empty()
        || before.trim_end().ends_with([',', ':', '"', '-'])
        || before.ends_with(' ');
    let is_noun = [
        "备注", "记录", "登记", "标注", "标记", "保存", "录入", "注明", "存档",
    ]
    .contains(&core);
    let is_imperative = [
        "一下",
        "下来",
        "一笔",
        "在案",
        "进去",
        "起来",
        "别忘了",
        "别忘记",
        "不要忘记",
        "不要忘了",
    ]
    .iter()
    .any(|end| core.ends_with(end));
    (begins && !is_noun) || is_imperative
}

fn is_english_request(folded: &str, hit: &regex::Captures<'_>) -> bool {
    let whole = hit.get(0).expect("a match has a whole");
    let (prefix, core) = (&hit["prefix"], &hit["core"]);
    let before = &folded[..whole.start()];
    let after = &folded[hit.name("core").map_or(whole.end(), |m| m.end())..];
    if core.starts_with("remember") && RECALLS.is_match(after) {
        return false;
    }
    if core.starts_with("remember")
        && after.trim_start().starts_with("to ")
        && folded.trim_end().ends_with('?')
    {
        return false;
    }
    let has_prefix =
        !prefix.trim().is_empty() && prefix.trim() != "do" && prefix.trim() != "always";
    // A Han character before an English cue is no sentence of its own.
    let begins = OPENING.is_match(before) || before.chars().next_back().is_some_and(is_han);
    let is_fixed =
        core == "for the record" || core.starts_with("for future") || core.starts_with("for your");
    // "X, write this down": after a finished statement the cue needs no mark.
    has_prefix && !before.trim_end().ends_with(" i") || begins || is_fixed
}

/// The sentence with some ranges blanked, byte by byte, so that places stay the same.
pub(crate) fn masked(folded: &str, ranges: &[Range<usize>]) -> String {
    let mut text = String::with_capacity(folded.len());
    for (at, c) in folded.char_indices() {
        if ranges.iter().any(|range| range.contains(&at)) {
            text.extend(std::iter::repeat_n(' ', c.len_utf8()));
        } else {
            text.push(c);
        }
    }
    text
}

/// Whether a text holds more than marks and politeness.
pub(crate) fn says_something(text: &str) -> bool {
    FILLER
        .replace_all(text, "")
        .chars()
        .filter(|c| c.is_alphanumeric())
        .count()
        >= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;

    fn check(text: &str, expected: Option<&str>) {
        let folded = fold(text);
        let found = cue(&folded).map(|cue| masked(&folded, &cue.ranges));
        let found = found
            .as_deref()
            .map(|t| t.trim_matches(|c: char| !c.is_alphanumeric()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn requests_in_many_wordings_are_found() {
        check("我不吃香菜，记一下。", Some("我不吃香菜"));
        check("我对青霉素过敏，帮我记住。", Some("我对青霉素过敏"));
        check("请记住，我对牛奶过敏。", Some("我对牛奶过敏"));
        check("记住：改用 B 方案", Some("改用 b 方案"));
        check("把我不吃香菜这件事记下来。", Some("我不吃香菜"));
        check("别忘了我下周三要空腹抽血。", Some("我下周三要空腹抽血"));
        check("能不能帮我记一下我对花生过敏？", Some("我对花生过敏"));
        check(
            "Please remember that I do not eat cilantro.",
            Some("i do not eat cilantro"),
        );
        check(
            "Keep this on file: I am allergic to penicillin.",
            Some("i am allergic to penicillin"),
        );
        check(
            "Note for the future: my target is below 7.0.",
            Some("my target is below 7.0"),
        );
        check(
            "Do not let me forget the fasting blood draw next Wednesday.",
            Some("the fasting blood draw next wednesday"),
        );
        check(
            "I live in Leeds now, write this down please",
            Some("i live in leeds now"),
        );
        check(
            "Could you please note that I'm left-handed?",
            Some("i'm left-handed"),
        );
        check(
            "remember that my dog is called Rex",
            Some("my dog is called rex"),
        );
    }

    #[test]
    fn look_alikes_are_not() {
        for text in [
            "我记住了",
            "好的，记住了。",
            "你还记得吗？",
            "你记得我的过敏史吗？",
            "我记不住药名",
            "我记得小时候对虾过敏",
            "do you remember when we met?",
            "I can't remember the name",
            "Got it, I will remember that, thanks.",
            "I remember taking it",
            "Can you remember what I said?",
            "过敏史登记：阿司匹林。",
            "医生已经记下来了",
            "I made a note that hurt",
        ] {
            check(text, None);
        }
    }
}
