//! Is a clause an assertion of its speaker at all, or a question, a supposition, somebody else's words?

use anamnesis_domain::input::RejectCode;

use crate::pattern::fixed;

/// How sure the speaker is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hedge {
    None,
    /// 好像, "I think": kept, with low confidence.
    Weak,
    /// 可能, "might": not confirmed.
    Strong,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Modality {
    /// Why nothing can be asserted from the clause, if so.
    pub(crate) refused: Option<RejectCode>,
    pub(crate) hedge: Hedge,
    /// "I mean …", 更正.
    pub(crate) corrects: bool,
    /// "from today", 现在, "update": the world changed.
    pub(crate) changes: bool,
    /// The clause is over: "today only" ends with its day, "just this once" is not kept.
    pub(crate) lasting: Lasting,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lasting {
    Open,
    TodayOnly,
    ThisOnce,
    /// 暂时, "for now".
    ForNow,
}

fixed!(
    HYPOTHETICAL,
    r"如果|假如|要是|万一|倘若|假设|假使|若是|倘使|^\s*若|的话$|怎么办|比如说?|例如|举例|^\s*(?:and |but |so |or |then )?(?:if|unless|suppose|supposing|in case|what if|imagine|assuming|whether)\b|\bwhat if\b|\bif i (?:were|was|had|have|am|get|take|got|become)\b|\bwere i\b|\bi would be\b|\bhypothetical|\bfor example\b|\be\.g\."
);
fixed!(
    REPORTED_QUESTION,
    r"(?:问|询问|追问|打听)(?:过|了|一下)?(?:我|我们|他|她|病人|患者|大家)?.{0,12}(?:是不是|有没有|是否|会不会|能不能|可不可以|对不对|要不要|吗|什么|怎么|哪|多少|过敏史)|想知道.{0,12}(?:是不是|有没有|是否|会不会)|\b(?:asked|asks|asking|wondered|wonders|wondering|wants? to know|wanted to know|inquired?)\b.{0,30}\b(?:if|whether|what|when|how|which|about|why)\b"
);
fixed!(
    QUESTION_WORDS,
    r"什么(?:时候|药|东西|样|病)?(?:呢|呀|啊)?$|是不是|有没有|是否|会不会|能不能|可不可以|要不要|为什么|为何|怎么(?:样|办|回事|会)|如何|哪(?:些|个|里|种|儿)|几点|多久|多少|请问|能否|可否|行不行|好不好|吗\s*$|呢\s*$|吧\s*\?|么\s*$|^\s*(?:and |but |so |or )?(?:am|is|are|was|were|do|does|did|can|could|should|would|will|may|might|have|has|shall)\s+(?:i|you|he|she|it|we|they|my|this|that|there|the|anyone|a|an)\b|^\s*(?:and |but |so )?(?:what|why|how|which|who|whose|(?:when|where) (?:is|are|do|does|did|will|should|can|was|were|would|could|am|have|has))\b"
);
fixed!(
    STRONG_HEDGE,
    r"(?:^|[^尽])可能|也许|或许|说不定|没准|疑似|怀疑|不确定|不清楚|不知道|拿不准|不记得|记不清|忘了是|未必|不一定|担心|害怕|怕(?:是|自己|我|得|有|会)|恐怕|以为|差点|\b(?:might|maybe|perhaps|possibly|may (?:be|have)|could (?:be|have)|not sure|unsure|don't know|do not know|suspect(?:ed|s)?|worried|afraid|wonder|can't remember|don't remember|not certain|unclear|possible|potentially|supposedly|thought i)\b"
);
fixed!(
    WEAK_HEDGE,
    r"好像|似乎|大概|估计|应该(?:是|有|会)?|我觉得|感觉|貌似|听说|据说|印象中|我猜|看起来|多半|大约是|\b(?:i think|don't think|do not think|i guess|i believe|i suppose|probably|apparently|seems?|seemingly|likely|sort of|kind of|i feel like|as far as i know|if i remember|supposed to)\b"
);
fixed!(
    OTHER_SPEAKER,
    r"网上说|网友|有人说|新闻(?:说|里|上)|文章(?:说|里)|短信(?:里|说|写|上|显示|提示|称)|收到.{0,8}短信|邮件里|广告(?:里|说|上|称)|电视(?:上|里)|说明书|书上说|电影|小说|剧里|梦见|讲述|讲的是|故事|主人公|主角|\b(?:article|the news|website says|read (?:online|that)|on tv|movie|story of|the novel|tv series|the film|a text saying|an email saying|leaflet says|ad says|advert|dreamed|dreamt|character)\b"
);
fixed!(
    FORGET,
    r"(?:请|帮我|把|麻烦)?(?:忘记|忘掉|删除|删掉|删了|清除|抹掉)(?:我|掉|这|那|之前|有关|关于|所有|全部)|把.{1,30}(?:删掉|删除|删了|忘掉|忘记|清除|抹掉)|\b(?:please )?(?:forget|delete|erase|remove)\b.{0,12}\b(?:what i|the \w+ i (?:gave|told)|everything|that i|my (?:data|record|memory|history|address|profile))\b|\bforget (?:about )?the \w+\b"
);
fixed!(
    CORRECTION,
    r"更正|纠正|订正|说错了|写错了?|记错了?|弄错了?|搞错了?|打错了?|不对(?:\s*[,;.!。]|\s*$|应)|应该是|应为|有误|口误|\b(?:correction|correcting|i meant|i mean|i misspoke|my mistake|to correct|typo|that was wrong|that's wrong|not right|wrongly|scratch that|mistakenly)\b"
);
fixed!(
    CHANGE,
    r"从(?:今天|现在|今|明天|下周|本周|这周|昨天|上周|上个月|\d+月|\d+号).{0,6}起|(?:今天|现在|昨天|上周|刚|最近|刚刚|已经?)(?:开始|起)|情况更新|改成|改为|改用|改吃|换成|换为|换了|换到|调整(?:为|到|成)|调(?:到|成|为)|加到|加量|增加到|减到|减为|减量|减少到|升到|降到|新开|新加|加了|停了|停掉|停用|停药|停服|停止|不再|不用再|已经不|早就不|现在不|不.{0,12}了$|没.{0,12}了$|改到|改期|推迟|改名|搬到|搬家|搬去|戒了|戒烟|痊愈|治好|好了|^更新|退休了|失业了|怀孕了|\b(?:from (?:today|now)|starting (?:today|tomorrow|now|this|next)|as of (?:today|now|this)|beginning today|no longer|not any ?more|any ?more|any longer|stopped|quit|gave up|discontinued|came off|switch(?:ed|ing)? (?:to|from)|chang(?:ed|ing) (?:to|from|it)|increased|decreased|reduced|raised|lowered|bumped|update|now|just started|started|has resolved|have resolved|resolved|is over|is gone|went from|moved|retired|used to|outgrew|outgrown|new dose|recently started|put me on)\b"
);
fixed!(
    TODAY_ONLY,
    r"(?:今天|今日|今晚)(?:先|临时|暂时|就|只|一天)|(?:只|仅|就)(?:限)?今天|临时|\b(?:today only|only today|just (?:for )?today|for today|only for today|just for tonight|tonight only)\b"
);
fixed!(
    THIS_ONCE,
    r"这次(?:先|就|不|别|只)|就这一?次|仅此一次|这一次|本次(?:先|不)|下不为例|\b(?:just|only|for)? ?this (?:once|one time|time only)\b|\bthis time\b|\bjust once\b|\bone[- ]off\b|\bone-time\b"
);
fixed!(
    FOR_NOW,
    r"暂时|暂且|目前先|先不|\b(?:for now|for the time being|temporarily|at the moment|for the moment)\b"
);

/// Reads a folded clause. `asks` says that the sentence ends with a question mark and this is its last
/// clause; `supposed` that an earlier clause of the sentence opened a supposition.
pub(crate) fn modality(clause: &str, asks: bool, supposed: bool) -> Modality {
    let refused = if REPORTED_QUESTION.is_match(clause) {
        Some(RejectCode::ReportedQuestion)
    } else if supposed || HYPOTHETICAL.is_match(clause) {
        Some(RejectCode::Hypothetical)
    } else if asks || is_question(clause) || FORGET.is_match(clause) {
        Some(RejectCode::NotUserAssertion)
    } else if OTHER_SPEAKER.is_match(clause) {
        Some(RejectCode::OtherSpeaker)
    } else {
        None
    };
    let corrects = CORRECTION.is_match(clause);
    let hedge = if STRONG_HEDGE.is_match(clause) {
        Hedge::Strong
    } else if WEAK_HEDGE.is_match(clause) && !corrects {
        Hedge::Weak
    } else {
        Hedge::None
    };
    let lasting = if THIS_ONCE.is_match(clause) {
        Lasting::ThisOnce
    } else if TODAY_ONLY.is_match(clause) {
        Lasting::TodayOnly
    } else if FOR_NOW.is_match(clause) {
        Lasting::ForNow
    } else {
        Lasting::Open
    };
    Modality {
        refused,
        hedge,
        corrects,
        changes: CHANGE.is_match(clause),
        lasting,
    }
}

pub(crate) fn is_question(clause: &str) -> bool {
    QUESTION_WORDS.is_match(clause.trim_end_matches(|c: char| !c.is_alphanumeric()))
}

/// Whether the clause supposes something, so that what follows in the sentence is supposed too.
pub(crate) fn opens_supposition(clause: &str) -> bool {
    HYPOTHETICAL.is_match(clause)
}

/// Asks to forget: not an assertion, and no fact may be read from it.
pub(crate) fn asks_to_forget(sentence: &str) -> bool {
    FORGET.is_match(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;

    fn check(text: &str, expected: Option<RejectCode>) {
        assert_eq!(
            modality(&fold(text), text.ends_with(['?', '？']), false).refused,
            expected,
            "{text}"
        );
    }

    #[test]
    fn what_is_not_asserted_is_refused_by_name() {
        check("如果我对青霉素过敏怎么办？", Some(RejectCode::Hypothetical));
        check(
            "if I were allergic to penicillin",
            Some(RejectCode::Hypothetical),
        );
        check("医生问我是不是怀孕了", Some(RejectCode::ReportedQuestion));
        check(
            "the doctor asked me if I was pregnant",
            Some(RejectCode::ReportedQuestion),
        );
        check("我可以吃花生酱吗？", Some(RejectCode::NotUserAssertion));
        check(
            "am I allergic to shellfish",
            Some(RejectCode::NotUserAssertion),
        );
        check("请忘记我之前说的住址", Some(RejectCode::NotUserAssertion));
        check("网上说我这种情况是糖尿病", Some(RejectCode::OtherSpeaker));
    }

    #[test]
    fn an_assertion_is_not_refused() {
        for text in [
            "我对青霉素过敏",
            "I have asthma",
            "没问题，我有高血压",
            "我从来没有问题",
            "I may not eat nuts",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn hedges_have_two_strengths() {
        for (text, hedge) in [
            ("我可能对花生过敏", Hedge::Strong),
            ("I might be allergic", Hedge::Strong),
            ("我好像对花生过敏", Hedge::Weak),
            ("I think I'm allergic to nuts", Hedge::Weak),
            ("I'm allergic to nuts", Hedge::None),
        ] {
            assert_eq!(modality(&fold(text), false, false).hedge, hedge, "{text}");
        }
    }
}
