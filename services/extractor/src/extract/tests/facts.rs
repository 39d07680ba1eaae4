//! What is stated, and how it is found.

use super::*;

#[test]
fn an_allergy_to_anything_is_found_in_both_languages() {
    for (text, value) in [
        ("我对花生过敏", "peanut"),
        ("I'm allergic to peanuts", "peanut"),
        ("我对芒果过敏", "mango"),
        ("I am allergic to mango", "mango"),
        ("本人青霉素过敏", "penicillin"),
        ("I have a penicillin allergy", "penicillin"),
        ("Allergy: shellfish", "shellfish"),
        ("过敏史登记：尘螨。", "house dust mite"),
        ("我对刺槐蜜饯过敏", "刺槐蜜饯"),
        ("I'm allergic to quinoa", "quinoa"),
        ("患者对头孢曲松钠皮试阳性", "ceftriaxone"),
    ] {
        check(text, &[&format!("allergy={value}")]);
    }
    check(
        "我对猕猴桃、虾和尘螨过敏",
        &["allergy=kiwi", "allergy=shrimp", "allergy=house dust mite"],
    );
    check(
        "I'm allergic to eggs, walnuts and latex",
        &["allergy=egg", "allergy=walnut", "allergy=latex"],
    );
}

#[test]
fn no_allergy_is_a_fact_too() {
    check("我没有药物过敏", &["allergy=drug not"]);
    check("No known drug allergies", &["allergy=drug not"]);
    for text in [
        "我没有食物过敏",
        "我对任何食物都不过敏",
        "否认食物过敏",
        "No food allergies",
        "No known food allergies",
        "I don't have any food allergies",
        "I'm not allergic to any food",
    ] {
        check(text, &["allergy=food not"]);
    }
    for text in [
        "我没有环境过敏",
        "No known environmental allergies",
        "I don't have any environmental allergies",
    ] {
        check(text, &["allergy=environment not"]);
    }
    check("过敏史：无", &["allergy=any not"]);
    check("我对虾不过敏", &["allergy=shrimp not"]);
    check("I'm not allergic to cats", &["allergy=cat not"]);
}

#[test]
fn an_allergy_that_is_over_is_a_change() {
    check("青霉素过敏已经排除了", &["allergy=penicillin not change"]);
    check("I outgrew my egg allergy", &["allergy=egg not change"]);
    check(
        "My mango allergy has been ruled out",
        &["allergy=mango not change"],
    );
    check("我已经不对芒果过敏了", &["allergy=mango not change"]);
}

#[test]
fn a_thing_left_out_is_taken_from_the_conversation_only_when_it_is_clear() {
    check_in(
        "其实我不过敏了，皮试阴性。",
        &after(&["我对青霉素过敏"]),
        &["allergy=penicillin not change"],
    );
    check_in(
        "Actually I'm not allergic any more",
        &after(&["I'm allergic to mango"]),
        &["allergy=mango not change"],
    );
    check("其实我不过敏了，皮试阴性。", &[]);
    check_in("其实我不过敏了", &after(&["我对芒果和虾过敏"]), &[]);
    check_in("其实我不过敏了", &after(&["我妈对芒果过敏"]), &[]);
}

#[test]
fn every_statement_has_its_own_subject() {
    check(
        "我爸对青霉素过敏，我自己没有药物过敏",
        &["father allergy=penicillin", "allergy=drug not"],
    );
    check(
        "我外婆对芒果过敏，我对虾过敏",
        &[
            "other(maternal grandmother) allergy=mango",
            "allergy=shrimp",
        ],
    );
    check(
        "My wife is allergic to shellfish and I have asthma",
        &["spouse allergy=shellfish", "condition=asthma"],
    );
    check("我妈说我对花生过敏", &["allergy=peanut"]);
    check(
        "我和我弟弟都对牛奶过敏",
        &["allergy=milk", "other(younger brother) allergy=milk"],
    );
    check(
        "我先生有痛风，在吃别嘌醇",
        &["spouse condition=gout", "spouse medication=allopurinol"],
    );
    check("My uncle has gout", &["other(uncle) condition=gout"]);
    check(
        "我没有高血压，是我父亲有。",
        &[
            "condition=hypertension not",
            "father condition=hypertension",
        ],
    );
    check(
        "我女儿对头孢过敏，不是我。",
        &["other(daughter) allergy=cephalosporin"],
    );
}

#[test]
fn not_me_but_my_father_confirms_the_fathers_and_says_nothing_new_of_me() {
    let context = after(&["我爸对青霉素过敏，我自己没有药物过敏"]);
    check_in(
        "不是我过敏，是我爸",
        &context,
        &["father allergy=penicillin"],
    );
    check_in(
        "It's not me, it's my dad",
        &context,
        &["father allergy=penicillin"],
    );
    check("不是我过敏，是我爸", &[]);
    check_in(
        "不是我过敏，是我妈",
        &after(&["我对芒果过敏"]),
        &["allergy=mango not correct", "mother allergy=mango"],
    );
}

#[test]
fn a_drug_has_dose_and_schedule() {
    check(
        "我在吃二甲双胍，每天两次",
        &["medication=metformin twice_daily"],
    );
    check(
        "I take metformin 500 mg twice a day",
        &["medication=metformin 500 mg twice_daily"],
    );
    check(
        "从今天起我服用奥美拉唑肠溶胶囊 20 mg",
        &["medication=omeprazole change 20 mg"],
    );
    check(
        "阿莫西林克拉维酸钾 ０．６２５ｇ",
        &["medication=amoxicillin-clavulanate 625 mg"],
    );
    check(
        "氨氯地平 每天 5 mg",
        &["medication=amlodipine 5 mg once_daily"],
    );
    check(
        "The doctor put me on amoxicillin 500 mg / clavulanate 125 mg tablet",
        &["medication=amoxicillin-clavulanate change 625 mg"],
    );
    check(
        "I started taking zanubrutinib 80 mg twice a day",
        &["medication=zanubrutinib change 80 mg twice_daily"],
    );
    check(
        "I take lisinopril, metformin and aspirin",
        &[
            "medication=lisinopril",
            "medication=metformin",
            "medication=aspirin",
        ],
    );
}

#[test]
fn a_second_drug_and_an_examination_end_nothing() {
    check("今天加了阿托伐他汀", &["medication=atorvastatin change"]);
    let set = extract(&turn(Role::User, "周三去做了眼底检查"), &Context::default());
    assert_eq!(facts(&set), ["examination=fundus examination 2026-06-17"]);
    assert_eq!(
        set.candidates[0].claim.valid_from.to_string(),
        "2026-06-16T16:00:00Z"
    );
}

#[test]
fn a_drug_that_is_stopped_is_a_negative_change() {
    for text in [
        "我现在不再使用赖诺普利片 10 mg了",
        "已停用赖诺普利片 10 mg。",
        "I no longer take lisinopril 10 mg tablet.",
        "Stopped lisinopril 10 mg tablet.",
    ] {
        check(text, &["medication=lisinopril not change 10 mg"]);
    }
    // The verb of taking lies within the one of stopping.
    check("停用上午九点二甲双胍", &["medication=metformin not change"]);
    check(
        "三年前的降压药我已经停了。",
        &["medication=antihypertensive not change"],
    );
    check(
        "I stopped taking ibuprofen",
        &["medication=ibuprofen not change"],
    );
    check("我不吃辛伐他汀了", &["medication=simvastatin not change"]);
    check_in(
        "我上周就停药了",
        &after(&["我在吃华法林"]),
        &["medication=warfarin not change"],
    );
    check(
        "停用阿司匹林，改用氯吡格雷75 mg每日一次。",
        &[
            "medication=aspirin not change",
            "medication=clopidogrel change 75 mg once_daily",
        ],
    );
    check(
        "I switched from lisinopril to losartan 50 mg",
        &[
            "medication=lisinopril not change",
            "medication=losartan change 50 mg",
        ],
    );
}

#[test]
fn a_new_dose_and_a_corrected_dose_differ_in_intent() {
    check(
        "医生把氨氯地平从5 mg改成2.5 mg了",
        &["medication=amlodipine change 2.5 mg"],
    );
    check(
        "My amlodipine went from 5 mg to 2.5 mg",
        &["medication=amlodipine change 2.5 mg"],
    );
    check_in(
        "改成 10 mg",
        &after(&["我在吃氨氯地平 5 mg"]),
        &["medication=amlodipine change 10 mg"],
    );
    check_in(
        "increased to 20 mg",
        &after(&["I take simvastatin 10 mg"]),
        &["medication=simvastatin change 20 mg"],
    );
    check_in(
        "更正：5 mg",
        &after(&["氨氯地平 每天 50 mg"]),
        &["medication=amlodipine correct 5 mg"],
    );
    check(
        "I meant 5 mg, not 50 mg of amlodipine",
        &["medication=amlodipine correct 5 mg"],
    );
    check("更正：5 mg", &[]);
}

#[test]
fn asking_about_a_drug_is_not_taking_it() {
    for text in [
        "二甲双胍有什么副作用",
        "请问布洛芬怎么吃？",
        "Should I stop taking metformin?",
        "我忘了吃二甲双胍",
        "我可以吃布洛芬吗",
    ] {
        check(text, &[]);
    }
    check("我不能吃阿司匹林", &["contraindication=aspirin"]);
    check("I can't take NSAIDs", &["contraindication=nsaid"]);
}

#[test]
fn conditions_begin_and_end() {
    check(
        "诊断为急性细菌性鼻窦炎。",
        &["condition=acute bacterial sinusitis"],
    );
    check(
        "Diagnosed with acute bacterial sinusitis.",
        &["condition=acute bacterial sinusitis"],
    );
    check(
        "急性支气管炎已痊愈。",
        &["condition=acute bronchitis not change"],
    );
    check(
        "The acute bronchitis is over.",
        &["condition=acute bronchitis not change"],
    );
    check(
        "医生说我有慢性肾脏病3期。",
        &["ckd_stage=chronic kidney disease stage 3"],
    );
    check("新增诊断：糖尿病前期。", &["glycaemic_status=prediabetes"]);
    check(
        "否认高血压、糖尿病病史",
        &["condition=hypertension not", "condition=diabetes not"],
    );
    check(
        "I don't have diabetes or high blood pressure",
        &["condition=diabetes not", "condition=hypertension not"],
    );
    check("我得过肺炎", &["condition=history of pneumonia"]);
    check("家族史：糖尿病", &["other(family) condition=diabetes"]);
    check("疼痛不断加重", &[]);
    check("不过已经好多了", &[]);
    check("Das Knie schmerzt seit Tagen", &[]);
}

#[test]
fn statuses_hold_one_value_each() {
    check(
        "Work status: the patient works full time.",
        &["employment_status=full_time"],
    );
    check(
        "情况更新：现在待业。",
        &["employment_status=unemployed change"],
    );
    check(
        "工作状况：目前未参加工作。",
        &["employment_status=not_in_labor_force"],
    );
    check(
        "Update: the patient now works part time.",
        &["employment_status=part_time change"],
    );
    check("我去年戒烟了", &["smoking_status=former_smoker change"]);
    check("I don't smoke", &["smoking_status=non_smoker"]);
    check("我老婆怀孕了", &["spouse pregnancy_status=pregnant change"]);
    check("I moved to Boston last month", &["address=boston change"]);
    check("My mailing address is 12 Oak Street", &[]);
    check("我的邮寄地址是长沙市", &[]);
    check("I work as a nurse", &["occupation=nurse"]);
    check("退款打到尾号 8812 的卡", &["payout_account=8812"]);
    check("改成尾号 3047 的卡", &["payout_account=3047 change"]);
    check(
        "Refund it to the card ending in 5521",
        &["payout_account=5521"],
    );
    check("以后请用中文和我沟通", &["language=chinese"]);
    check("改用 B 方案", &["plan=b change"]);
}

#[test]
fn numbers_about_the_body_are_exact() {
    check("体重 72 公斤", &["weight=72 kg 72 kg"]);
    check("我身高1米75", &["height=175 cm 175 cm"]);
    check(
        "血压 150/95",
        &[
            "measurement=systolic blood pressure 150 mmhg",
            "measurement=diastolic blood pressure 95 mmhg",
        ],
    );
    check("my HbA1c was 7.2%", &["measurement=hba1c 7.2 %"]);
    check(
        "空腹血糖 7.8 mmol/L",
        &["measurement=fasting glucose 7.8 mmol/l"],
    );
}

#[test]
fn relative_dates_count_from_the_event_in_its_own_zone() {
    let set = extract(
        &turn(Role::User, "明天上午九点复查，上周五抽的血"),
        &Context::default(),
    );
    assert_eq!(
        facts(&set),
        [
            "appointment=follow-up 2026-06-19T09:00+08:00",
            "examination=blood test 2026-06-12",
        ]
    );
    let (visit, drawn) = (&set.candidates[0].claim, &set.candidates[1].claim);
    // Known from when it was said, over with its day.
    assert_eq!(visit.valid_from.to_string(), "2026-06-18T15:50:00Z");
    assert_eq!(visit.valid_to.unwrap().to_string(), "2026-06-19T16:00:00Z");
    assert_eq!(drawn.valid_from.to_string(), "2026-06-11T16:00:00Z");
    assert_eq!(drawn.quote.as_ref().unwrap().expose(), "上周五抽的血");
    check(
        "I have an appointment next Tuesday at 3pm",
        &["appointment=doctor appointment 2026-06-23T15:00+08:00"],
    );
    check("9月3号做手术", &["appointment=surgery 2026-09-03"]);
}

#[test]
fn a_state_holds_from_the_date_that_was_said() {
    for (text, from) in [
        ("我从2019年起吃氨氯地平", "2018-12-31T16:00:00Z"),
        ("I've had asthma since 2010", "2009-12-31T16:00:00Z"),
        ("三年前确诊2型糖尿病", "2023-06-17T16:00:00Z"),
        ("2026-06-01 体重 72 公斤", "2026-05-31T16:00:00Z"),
        ("我对芒果过敏", "2026-06-18T15:50:00Z"),
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        assert_eq!(
            set.candidates[0].claim.valid_from.to_string(),
            from,
            "{text}"
        );
    }
}

#[test]
fn negation_is_never_lost() {
    check("可以做增强 CT", &["contrast_ct=allowed"]);
    check(
        "不可以做增强 CT，对造影剂过敏",
        &["contrast_ct=not_allowed", "allergy=iodinated contrast"],
    );
    check(
        "不需要每天打电话提醒我",
        &["constraint=每天打电话提醒我 not"],
    );
    check("不要在上午给我打电话", &["constraint=在上午给我打电话 not"]);
    check(
        "never call me before noon",
        &["constraint=call me before noon not"],
    );
    for text in [
        "不需要每天打电话提醒我",
        "I don't eat cilantro",
        "我没有糖尿病",
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        assert_eq!(
            set.candidates[0].claim.quote.as_ref().unwrap().expose(),
            text
        );
    }
}

#[test]
fn words_that_only_sound_like_a_fact_are_none() {
    for text in [
        "没有人对花生过敏",
        "给孩子吃了美林",
        "I forgot to take my metformin today",
        "医生说不用停二甲双胍",
        "Don't stop my metformin",
        "我计划在旅行中住在民宿",
        "the story of an unemployed father",
        "我现在必须离开了",
        "It must have been hard",
    ] {
        check(text, &[]);
    }
    check(
        "我的地址改成北京市建国路1号",
        &["address=北京市建国路1号 change"],
    );
    check(
        "I am severely allergic to bee stings and carry an EpiPen",
        &["allergy=bee venom"],
    );
    check(
        "我不吸烟不喝酒",
        &["smoking_status=non_smoker", "preference=alcohol not"],
    );
    check(
        "下周三下午两点去复查甲功",
        &["appointment=thyroid function test 2026-06-24T14:00+08:00"],
    );
    check(
        "我取消了明天的复查",
        &["appointment=follow-up not change 2026-06-19"],
    );
}

#[test]
fn tastes_are_kept_and_remarks_are_not() {
    check("我不吃香菜", &["preference=cilantro not"]);
    check("I do not eat cilantro", &["preference=cilantro not"]);
    check(
        "I prefer morning appointments",
        &["preference=morning appointments"],
    );
    check("I'm vegetarian", &["preference=vegetarian diet"]);
    check("我不喜欢吃苦瓜", &["preference=bitter melon not"]);
    for text in [
        "I feel like crying",
        "that looks like rain",
        "I'd like to book",
        "Love the vase!",
        "我不吃药",
    ] {
        check(text, &[]);
    }
}

#[test]
fn a_rule_for_the_assistant_is_the_speakers_whoever_it_names() {
    check(
        "Always call my wife first.",
        &["constraint=always call my wife first"],
    );
    check(
        "Please don't call my mother.",
        &["constraint=call my mother not"],
    );
    check("请不要给我妈打电话。", &["constraint=给我妈打电话 not"]);
    check(
        "以后请一定先联系我老婆。",
        &["constraint=以后请一定先联系我老婆"],
    );
}
