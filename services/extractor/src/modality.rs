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
    r"如果|假如|要是|要不是|除非|若非|若不是|但愿|真希望|希望(?:我|自己)?(?:没|不|有|是)|险些|差一点|万一|倘若|假设|假使|若是|倘使|^\s*若|的话$|怎么办|比如说?|例如|举例|^\s*(?:and |but |so |or |then )?(?:if|unless|suppose|supposing|in case|what if|imagine|assuming|whether)\b|\bwhat if\b|\bif i (?:were|was|had|have|am|get|take|got|become)\b|\bwere i\b|\bhad i (?:not|been|known|had)\b|\bi would be\b|\b(?:i|he|she|we|they) wish(?:es|ed)?\b|\bif only\b|\bunless\b|\b(?:would|i'd|he'd|she'd)(?: not| never| only| probably| have)? (?:take|taken|use|used|have|had|need|needed|get|start|started|stop|stopped|smoke|drink|live|work)\b|\b(?:almost|nearly) (?:took|taken|had|got|went|started|stopped|quit|used|moved|died)\b|\bhypothetical|\bfor example\b|\be\.g\."
);
fixed!(
    REPORTED_QUESTION,
    r"(?:问|询问|追问|打听)(?:过|了|一下)?(?:我|我们|他|她|病人|患者|大家)?.{0,12}(?:是不是|有没有|是否|会不会|能不能|可不可以|对不对|要不要|吗|什么|怎么|哪|多少|过敏史)|想知道.{0,12}(?:是不是|有没有|是否|会不会)|\b(?:asked|asks|asking|wondered|wonders|wondering|wants? to know|wanted to know|inquired?)\b.{0,30}\b(?:if|whether|what|when|how|which|about|why)\b"
);
fixed!(
    QUESTION_WORDS,
    r"什么(?:时候|药|东西|样|病)?(?:呢|呀|啊)?$|是不是|有没有|是否|会不会|能不能|可不可以|要不要|为什么|为何|怎么(?:样|办|回事|会)|如何|哪(?:些|个|里|种|儿)|几点|多久|多少|请问|哪有|哪里有|哪儿有|谁说|难道|何曾|怎么可能|能否|可否|行不行|好不好|吗\s*$|呢\s*$|吧\s*\?|么\s*$|^\s*(?:and |but |so |or )?(?:am|is|are|was|were|do|does|can|could|should|would|will|may|might|shall)\s+(?:i|you|he|she|it|we|they|my|this|that|there|the|anyone|a|an)\b|^\s*(?:and |but |so |or )?(?:did|have|has)\s+(?:i|you|he|she|it|we|they|my|this|that|there|anyone)\b|^\s*(?:and |but |so )?(?:what|why|how|which|who|whose|(?:when|where) (?:is|are|do|does|did|will|should|can|was|were|would|could|am|have|has))\b"
);
fixed!(
    STRONG_HEDGE,
    r"(?:^|[^尽])可能|(?:不能|不|未|没有|没法|无法|尚未|难以|待)(?:完全)?排除|考虑(?:要|给|为|让|是否|再|把|停|换|加|用|开|是)|(?:打算|准备|计划|想)(?:给|让|为)我|(?:建议|推荐)我?(?:也|先|可以|开始|每天)?(?:吃|服|用|加|换|打)|[^我们己夫生家]\s*(?:觉得|认为|猜|断定|非说|总说)(?:我|他|她)|^\s*\?|\s\?[^\s?]|也许|或许|说不定|没准|疑似|怀疑|不确定|不清楚|不知道|拿不准|不记得|记不清|忘了是|未必|不一定|担心|害怕|怕(?:是|自己|我|得|有|会)|恐怕|以为|差点|\b(?:might|maybe|perhaps|possibly|may (?:be|have)|could (?:be|have)|not sure|unsure|don't know|do not know|suspect(?:ed|s)?|worried|afraid|wonder|can't remember|don't remember|not certain|unclear|possible|potentially|supposedly|thought i|consider(?:s|ed|ing)?|(?:is|are|was|am) thinking (?:of|about)|(?:can't|cannot|can not|not|couldn't|to|yet to) (?:be |been )?rule[d]? out|r/o|(?:my|the|his|her|our|some) \w+(?: \w+)? (?:thinks?|thought|believes?|believed|suspects?|reckons?|assumes?|assumed|fears?|guess(?:es|ed)?|claims?|claimed|insists?))\b"
);
fixed!(
    WEAK_HEDGE,
    r"好像|似乎|大概|估计|应该(?:是|有|会)?|我觉得|感觉|貌似|听说|据说|印象中|我猜|看起来|多半|大约是|\b(?:i think|don't think|do not think|i guess|i believe|i suppose|probably|apparently|seems?|seemingly|likely|sort of|kind of|i feel like|as far as i know|if i remember|supposed to)\b"
);
fixed!(
    OTHER_SPEAKER,
    r"隔壁(?:床|病房|桌)|(?:邻|临|隔)床|同病房|别人|陌生人|路人|某个?人|有个?人(?:有|对|在|得|说)|\b(?:someone|somebody|strangers?|(?:the|a|an|that) (?:man|woman|person|lady|guy|patient|boy|girl) (?:next|beside|across|in the (?:next|other)|opposite|i met)|in the next bed|(?:most|some|many|other) people|people (?:with|who))\b|网上说|网友|有人说|新闻(?:说|里|上)|文章(?:说|里)|短信(?:里|说|写|上|显示|提示|称)|收到.{0,8}短信|邮件里|广告(?:里|说|上|称)|电视(?:上|里)|说明书|书上说|电影|小说|剧里|梦见|讲述|讲的是|故事|主人公|主角|\b(?:article|the news|website says|read (?:online|that)|on tv|movie|story of|the novel|tv series|the film|a text saying|an email saying|leaflet says|ad says|advert|dreamed|dreamt|character)\b"
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

// What was never said, was wrong, or must not be said.
fixed!(
    RETRACTED,
    r"(?:没|没有|从未|从没|从来没有?|并没有?|并未|未曾)(?:跟你|和你|对你|跟谁|曾|这么)?(?:说|讲|提过|提到|提起)|(?:误|错)(?:记|写|录|登记|记录)(?:成|为|了|我|他|她)|错误地?(?:记|写|录|登记|记录|标)|误以为|被误认|误诊(?:为|成|我|说)|(?:不要|别|勿|不用|不许)(?:再)?(?:写|说|登记|注明|标注)(?:成|为|上)?(?:我|他|她)|谣传|(?:不是真的|假的|没这回事)|\b(?:never|didn't|did not|haven't|have not) (?:ever )?(?:said|say|claimed?|told (?:you|anyone|them)|tell (?:you|anyone|them)|mention(?:ed)?|stated?|wrote|written)\b|\b(?:wrongly|mistakenly|incorrectly|falsely|erroneously)\b|\b(?:used to|once|previously|always) (?:think|thought|believed?|assumed?)\b|\b(?:don't|do not|never|please don't) (?:write|say|note|state|put|claim|enter|report)(?: down)? that\b|\b(?:it is|it's|that is|that's) (?:not true|untrue|false|a lie|a myth|a rumou?r|a mistake|wrong) that\b"
);
// Animals live with people and take the same drugs.
fixed!(
    ANIMAL,
    r"(?:^|我们?家的?|我们?的|我|家里的?|他家的?|她家的?|养的|\p{Han}{1,4}家的?|\p{Han}{1,4}的)(?:那只|这只|一只|老|小|大|那条|这条)?(?:狗狗|小狗|狗|猫咪|小猫|猫|宠物|兔子|仓鼠|鹦鹉|乌龟|龙猫|金毛|泰迪|哈士奇|柯基|布偶|拉布拉多|边牧|柴犬|博美|萨摩耶|比熊|雪纳瑞|英短|美短)(?:叫?\p{Han}{1,3}?)?(?:也|都|最近|现在|好像|每天|一直)?(?:对|有|在|得|吃|患|是|不|打|服|用|需要|体重|被|怀|长|生|确诊|查出)|\b(?:my|our|his|her|their|the|a)\s+(?:[\w'-]+\s+){0,3}(?:dog|cat|puppy|pup|kitten|kitty|pet|horse|pony|rabbit|bunny|hamster|gerbil|parrot|budgie|canary|tortoise|cow|goat|sheep|guinea pig|ferret|beagle|labrador|retriever|poodle|terrier|bulldog|husky|corgi|spaniel|dachshund|chihuahua|collie|tabby)s?,?\s+(?:(?:\w+,|also|just|now|never|always|currently|recently)\s+)?(?:is|are|was|were|has|have|had|takes?|took|needs?|gets?|got|can't|cannot|can|eats?|drinks?|doesn't|does|lives?|weighs|suffers?|started|stopped|developed)\b"
);
// What an animal is given, or has as its own.
fixed!(
    OF_ANIMAL,
    r"给(?:我们?家的?|家里的?|那只|这只)?(?:狗狗|小狗|狗|猫咪|小猫|猫|宠物|兔子|仓鼠|鹦鹉)(?:\p{Han}{0,3})?(?:吃|喂|打|上|用|开|买|做)|\b(?:give|gave|giving|inject|injecting|feed|fed|feeding)\s+(?:my|our|the|his|her)\s+(?:[\w'-]+\s+){0,2}(?:dog|cat|puppy|kitten|pet|rabbit|hamster|parrot|horse|pony|beagle|labrador|poodle|terrier)s?\b|\bfor\s+(?:my|our|the)\s+(?:[\w'-]+\s+){0,2}(?:dog|cat|puppy|kitten|pet|rabbit|hamster|horse|pony)s?\b|\b(?:my|our|the|his|her)\s+(?:[\w'-]+\s+){0,2}(?:dog|cat|puppy|kitten|rabbit|hamster|horse|pony)(?:'s|s')\s+(?:[a-z]+\s+)?(?:diabetes|arthritis|epilepsy|asthma|cancer|tumou?rs?|kidneys?|heart|insulin|tablets?|pills?|medicine|medication|injections?|seizures?)\b"
);
fixed!(IT, r"^(?:and |but )?(?:it|it's)\b|^它");
// Who is treated by a vet is no person, whatever the name.
fixed!(
    VET,
    r"兽医|宠物(?:医院|诊所|店)|\b(?:the|our|a|my) vets?\b|\bveterinar\w+"
);
fixed!(
    IS_VET,
    r"(?:是|当|做)(?:名|个|一名)?兽医|\bvets? by profession\b|\b(?:as|am|is|i'm) (?:a|the) vet"
);

/// Whether the clause speaks of an animal; `of_animal` says that the clause before did.
pub(crate) fn is_about_animal(clause: &str, of_animal: bool, names_person: bool) -> bool {
    ANIMAL.is_match(clause)
        || OF_ANIMAL.is_match(clause)
        || (of_animal && (IT.is_match(clause) || !names_person))
}

/// Whether a sentence tells of a vet's patient.
pub(crate) fn is_at_the_vets(sentence: &str) -> bool {
    VET.is_match(sentence) && !IS_VET.is_match(sentence)
}

/// Reads a folded clause. `asks` says that the sentence ends with a question mark and this is its last
/// clause; `supposed` that an earlier clause of the sentence opened a supposition.
pub(crate) fn modality(clause: &str, asks: bool, supposed: bool) -> Modality {
    let refused = if REPORTED_QUESTION.is_match(clause) {
        Some(RejectCode::ReportedQuestion)
    } else if supposed || HYPOTHETICAL.is_match(clause) {
        Some(RejectCode::Hypothetical)
    } else if asks || is_question(clause) || FORGET.is_match(clause) || RETRACTED.is_match(clause) {
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
