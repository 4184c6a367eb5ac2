"""Times in words, in nineteen languages, two time zones and across changes of the clock."""

from datetime import UTC, datetime
from itertools import chain
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from sources.text.folding import fold
from sources.times import TIME_WORDS, TimeSpan, asks_for_anything, find_times, read_time, resolve
from sources.times.languages import EXACT_WORDS
from tests.cases import each_case

# A Sunday evening; it is already Monday in Tokyo.
SUNDAY = datetime(2026, 11, 15, 20, 30, tzinfo=UTC)
BERLIN, NEW_YORK, TOKYO = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Tokyo")

# The first day and the day after the last one, as seen on 15 November 2026.
YESTERDAY = ("2026-11-14", "2026-11-15")
DAY_BEFORE = ("2026-11-13", "2026-11-14")
THREE_DAYS_AGO = ("2026-11-12", "2026-11-13")
LAST_WEEK = ("2026-11-02", "2026-11-09")
LAST_MONTH = ("2026-10-01", "2026-11-01")
LAST_YEAR = ("2025-01-01", "2026-01-01")
LAST_FRIDAY = ("2026-11-13", "2026-11-14")
AUGUST = ("2023-08-01", "2023-09-01")
FIFTH = ("2023-08-05", "2023-08-06")
SUMMER = ("2022-06-01", "2022-09-01")
SINCE_MAY = ("2026-05-01", None)
BEFORE_2022 = (None, "2022-01-01")

AUGUST_LAST_YEAR = ("2025-08-01", "2025-09-01")
SUMMER_LAST_YEAR = ("2025-06-01", "2025-09-01")
MONDAY_LAST_WEEK = ("2026-11-02", "2026-11-03")
FRIDAY_LAST_WEEK = ("2026-11-06", "2026-11-07")
THIRD_QUARTER = ("2023-07-01", "2023-10-01")
WEEK_19 = ("2025-05-05", "2025-05-12")
MID_MAY = ("2024-05-11", "2024-05-21")
FIRST_WEEK_OF_MAY = ("2024-05-01", "2024-05-08")
MARCH_TO_MAY = ("2024-03-01", "2024-06-01")

Days = tuple[str | None, str | None]

PHRASES: dict[str, dict[str, Days]] = {
    "en": {
        "what did Ana say in August 2023": AUGUST,
        "on August 5, 2023": FIFTH,
        "the 5th of August 2023": FIFTH,
        "5 August 2023": FIFTH,
        "budget 2023-08": AUGUST,
        "budget 2023-08-05": FIFTH,
        "notes of last week": LAST_WEEK,
        "who called yesterday": YESTERDAY,
        "the day before yesterday": DAY_BEFORE,
        "three days ago": THREE_DAYS_AGO,
        "everything since May": SINCE_MAY,
        "trips before 2022": BEFORE_2022,
        "summer 2022 photos": SUMMER,
        "last Friday": LAST_FRIDAY,
        "last month": LAST_MONTH,
        "last year": LAST_YEAR,
        "in March": ("2026-03-01", "2026-04-01"),
        "5 August": ("2026-08-05", "2026-08-06"),
        "in December": ("2025-12-01", "2026-01-01"),
        "on Monday": ("2026-11-09", "2026-11-10"),
        "last weekend": ("2026-11-07", "2026-11-09"),
        "the week before 16 November 2023": ("2023-11-09", "2023-11-16"),
        "the last week of August 2023": ("2023-08-25", "2023-09-01"),
        "the first week of May": ("2026-05-01", "2026-05-08"),
        "the 3rd week of May 2024": ("2024-05-15", "2024-05-22"),
        "mid May": ("2026-05-11", "2026-05-21"),
        "early August 2023": ("2023-08-01", "2023-08-11"),
        "at the end of August 2023": ("2023-08-21", "2023-09-01"),
        "late 2023": ("2023-09-01", "2024-01-01"),
        "a fortnight ago": ("2026-10-26", "2026-11-02"),
        "Q3 2023 report": THIRD_QUARTER,
        "report 2023-Q3": THIRD_QUARTER,
        "report Q3/2023": THIRD_QUARTER,
        "in Q3": ("2026-07-01", "2026-10-01"),
        "the third quarter of 2023": THIRD_QUARTER,
        "3rd quarter last year": ("2025-07-01", "2025-10-01"),
        "last quarter": ("2026-07-01", "2026-10-01"),
        "the last quarter of 2023": ("2023-10-01", "2024-01-01"),
        "2025-W19": WEEK_19,
        "week 19 of 2025": WEEK_19,
        "W19 2025": WEEK_19,
        "calendar week 19": ("2026-05-04", "2026-05-11"),
        "2023 August": AUGUST,
        "2022 summer": SUMMER,
        "in August last year": AUGUST_LAST_YEAR,
        "last year in August": AUGUST_LAST_YEAR,
        "August 5 two years ago": ("2024-08-05", "2024-08-06"),
        "from August to October last year": ("2025-08-01", "2025-11-01"),
        "summer last year": SUMMER_LAST_YEAR,
        "Monday last week": MONDAY_LAST_WEEK,
        "Saturday of this week": ("2026-11-14", "2026-11-15"),
        "between March and May 2024": MARCH_TO_MAY,
        "from March to May 2024": MARCH_TO_MAY,
        "lunch 12/25/2023": ("2023-12-25", "2023-12-26"),
        "lunch 25/12/2023": ("2023-12-25", "2023-12-26"),
        "lunch 2023/08/05": FIFTH,
        "lunch 5/8/2023": ("2023-01-01", "2024-01-01"),
    },
    "de": {
        "Treffen im August 2023": AUGUST,
        "am 5. August 2023": FIFTH,
        "am 05.08.2023": FIFTH,
        "letzte Woche": LAST_WEEK,
        "was war gestern": YESTERDAY,
        "vorgestern": DAY_BEFORE,
        "vor drei Tagen": THREE_DAYS_AGO,
        "seit Mai": SINCE_MAY,
        "vor 2022": BEFORE_2022,
        "Sommer 2022": SUMMER,
        "letzten Freitag": LAST_FRIDAY,
        "im letzten Monat": LAST_MONTH,
        "letztes Jahr": LAST_YEAR,
        "im März": ("2026-03-01", "2026-04-01"),
        "im August letzten Jahres": AUGUST_LAST_YEAR,
        "letztes Jahr im August": AUGUST_LAST_YEAR,
        "im Sommer letzten Jahres": SUMMER_LAST_YEAR,
        "letzte Woche Montag": MONDAY_LAST_WEEK,
        "Montag letzter Woche": MONDAY_LAST_WEEK,
        "vor vierzehn Tagen": ("2026-11-01", "2026-11-02"),
        "Mitte Mai 2024": MID_MAY,
        "in der ersten Woche im Mai 2024": FIRST_WEEK_OF_MAY,
        "3. Quartal 2023": THIRD_QUARTER,
        "im dritten Quartal 2023": THIRD_QUARTER,
        "KW 19/2025": WEEK_19,
        "KW19 2025": WEEK_19,
        "von Mai bis Ende Juli 2023": ("2023-05-01", "2023-08-01"),
    },
    "fr": {
        "en août de l'année dernière": AUGUST_LAST_YEAR,
        "entre mars et mai 2024": MARCH_TO_MAY,
        "lundi de la semaine dernière": MONDAY_LAST_WEEK,
        "réunion en août 2023": AUGUST,
        "le 5 août 2023": FIFTH,
        "la semaine dernière": LAST_WEEK,
        "qu'avons-nous dit hier": YESTERDAY,
        "avant-hier": DAY_BEFORE,
        "il y a trois jours": THREE_DAYS_AGO,
        "depuis mai": SINCE_MAY,
        "avant 2022": BEFORE_2022,
        "l'été 2022": SUMMER,
        "vendredi dernier": LAST_FRIDAY,
        "le mois dernier": LAST_MONTH,
        "l'année dernière": LAST_YEAR,
        "en mars": ("2026-03-01", "2026-04-01"),
        "mi-mai 2024": MID_MAY,
        "la première semaine de mai 2024": FIRST_WEEK_OF_MAY,
        "T3 2023": THIRD_QUARTER,
        "le 3e trimestre 2023": THIRD_QUARTER,
        "semaine 19 de 2025": WEEK_19,
    },
    "es": {
        "en agosto del año pasado": AUGUST_LAST_YEAR,
        "el verano del año pasado": SUMMER_LAST_YEAR,
        "el lunes de la semana pasada": MONDAY_LAST_WEEK,
        "reunión en agosto de 2023": AUGUST,
        "el 5 de agosto de 2023": FIFTH,
        "la semana pasada": LAST_WEEK,
        "qué dijo Ana ayer": YESTERDAY,
        "anteayer": DAY_BEFORE,
        "hace tres días": THREE_DAYS_AGO,
        "desde mayo": SINCE_MAY,
        "antes de 2022": BEFORE_2022,
        "verano de 2022": SUMMER,
        "el viernes pasado": LAST_FRIDAY,
        "a mediados de mayo de 2024": MID_MAY,
        "la primera semana de mayo de 2024": FIRST_WEEK_OF_MAY,
        "tercer trimestre de 2023": THIRD_QUARTER,
        "semana 19 de 2025": WEEK_19,
        "el mes pasado": LAST_MONTH,
        "el año pasado": LAST_YEAR,
    },
    "pt": {
        "em agosto do ano passado": AUGUST_LAST_YEAR,
        "no verão do ano passado": SUMMER_LAST_YEAR,
        "reunião em agosto de 2023": AUGUST,
        "5 de agosto de 2023": FIFTH,
        "na semana passada": LAST_WEEK,
        "o que a Ana disse ontem": YESTERDAY,
        "anteontem": DAY_BEFORE,
        "há três dias": THREE_DAYS_AGO,
        "três dias atrás": THREE_DAYS_AGO,
        "desde maio": SINCE_MAY,
        "antes de 2022": BEFORE_2022,
        "verão de 2022": SUMMER,
        "sexta-feira passada": LAST_FRIDAY,
        "em meados de maio de 2024": MID_MAY,
        "a primeira semana de maio de 2024": FIRST_WEEK_OF_MAY,
        "3º trimestre de 2023": THIRD_QUARTER,
        "semana 19 de 2025": WEEK_19,
        "no mês passado": LAST_MONTH,
        "no ano passado": LAST_YEAR,
    },
    "ru": {
        "в августе прошлого года": AUGUST_LAST_YEAR,
        "летом прошлого года": SUMMER_LAST_YEAR,
        "прошлым летом": ("2026-06-01", "2026-09-01"),
        "в понедельник на прошлой неделе": MONDAY_LAST_WEEK,
        "встреча в августе 2023": AUGUST,
        "5 августа 2023 года": FIFTH,
        "на прошлой неделе": LAST_WEEK,
        "кто звонил вчера": YESTERDAY,
        "позавчера": DAY_BEFORE,
        "три дня назад": THREE_DAYS_AGO,
        "с мая": SINCE_MAY,
        "до 2022": BEFORE_2022,
        "летом 2022": SUMMER,
        "в прошлую пятницу": LAST_FRIDAY,
        "в середине мая 2024": MID_MAY,
        "первая неделя мая 2024": FIRST_WEEK_OF_MAY,
        "третий квартал 2023": THIRD_QUARTER,
        "в прошлом месяце": LAST_MONTH,
        "в прошлом году": LAST_YEAR,
    },
    "zh": {
        "去年8月的会议": AUGUST_LAST_YEAR,
        "去年夏天": SUMMER_LAST_YEAR,
        "上周一的会议": MONDAY_LAST_WEEK,
        "上个星期一": MONDAY_LAST_WEEK,
        "2023年8月的会议": AUGUST,
        "2023年8月5日": FIFTH,
        "上周的笔记": LAST_WEEK,
        "昨天谁打电话": YESTERDAY,
        "前天": DAY_BEFORE,
        "三天前": THREE_DAYS_AGO,
        "五月以来": SINCE_MAY,
        "2022年之前": BEFORE_2022,
        "2022年夏天": SUMMER,
        "上周五": FRIDAY_LAST_WEEK,
        "上个月": LAST_MONTH,
        "去年": LAST_YEAR,
        "八月五号": ("2026-08-05", "2026-08-06"),
    },
    "ja": {
        "去年の8月の会議": AUGUST_LAST_YEAR,
        "去年の夏": SUMMER_LAST_YEAR,
        "先週の月曜日": MONDAY_LAST_WEEK,
        "2023年8月の会議": AUGUST,
        "２０２３年８月５日": FIFTH,
        "先週のメモ": LAST_WEEK,
        "昨日の電話": YESTERDAY,
        "一昨日": DAY_BEFORE,
        "3日前": THREE_DAYS_AGO,
        "5月から": SINCE_MAY,
        "2022年より前": BEFORE_2022,
        "2022年の夏": SUMMER,
        "先週の金曜日": FRIDAY_LAST_WEEK,
        "先月": LAST_MONTH,
        "去年": LAST_YEAR,
    },
    "it": {
        "riunione in agosto 2023": AUGUST,
        "il 5 agosto 2023": FIFTH,
        "la settimana scorsa": LAST_WEEK,
        "chi ha chiamato ieri": YESTERDAY,
        "l'altro ieri": DAY_BEFORE,
        "tre giorni fa": THREE_DAYS_AGO,
        "da maggio": SINCE_MAY,
        "prima del 2022": BEFORE_2022,
        "estate 2022": SUMMER,
        "venerdì scorso": LAST_FRIDAY,
        "il mese scorso": LAST_MONTH,
        "l'anno scorso": LAST_YEAR,
        "nell'agosto dell'anno scorso": AUGUST_LAST_YEAR,
        "lunedì della settimana scorsa": MONDAY_LAST_WEEK,
        "tra marzo e maggio 2024": MARCH_TO_MAY,
        "metà maggio 2024": MID_MAY,
        "la prima settimana di maggio 2024": FIRST_WEEK_OF_MAY,
        "terzo trimestre 2023": THIRD_QUARTER,
        "settimana 19 del 2025": WEEK_19,
    },
    "nl": {
        "vergadering in augustus 2023": AUGUST,
        "op 5 augustus 2023": FIFTH,
        "vorige week": LAST_WEEK,
        "wie belde gisteren": YESTERDAY,
        "eergisteren": DAY_BEFORE,
        "drie dagen geleden": THREE_DAYS_AGO,
        "sinds mei": SINCE_MAY,
        "voor 2022": BEFORE_2022,
        "zomer 2022": SUMMER,
        "afgelopen vrijdag": LAST_FRIDAY,
        "vorige maand": LAST_MONTH,
        "vorig jaar": LAST_YEAR,
        "in augustus vorig jaar": AUGUST_LAST_YEAR,
        "maandag vorige week": MONDAY_LAST_WEEK,
        "van maart tot mei 2024": MARCH_TO_MAY,
        "medio mei 2024": MID_MAY,
        "de eerste week van mei 2024": FIRST_WEEK_OF_MAY,
        "derde kwartaal 2023": THIRD_QUARTER,
        "week 19 van 2025": WEEK_19,
    },
    "sv": {
        "möte i augusti 2023": AUGUST,
        "den 5 augusti 2023": FIFTH,
        "förra veckan": LAST_WEEK,
        "vem ringde igår": YESTERDAY,
        "i förrgår": DAY_BEFORE,
        "för tre dagar sedan": THREE_DAYS_AGO,
        "sedan maj": SINCE_MAY,
        "före 2022": BEFORE_2022,
        "sommaren 2022": SUMMER,
        "förra fredagen": LAST_FRIDAY,
        "i fredags": LAST_FRIDAY,
        "förra månaden": LAST_MONTH,
        "förra året": LAST_YEAR,
        "i fjol": LAST_YEAR,
        "i augusti förra året": AUGUST_LAST_YEAR,
        "måndag förra veckan": MONDAY_LAST_WEEK,
        "mellan mars och maj 2024": MARCH_TO_MAY,
        "mitten av maj 2024": MID_MAY,
        "första veckan i maj 2024": FIRST_WEEK_OF_MAY,
        "tredje kvartalet 2023": THIRD_QUARTER,
        "vecka 19 2025": WEEK_19,
        "i mars": ("2026-03-01", "2026-04-01"),
    },
    "da": {
        "møde i august 2023": AUGUST,
        "den 5. august 2023": FIFTH,
        "sidste uge": LAST_WEEK,
        "hvem ringede i går": YESTERDAY,
        "i forgårs": DAY_BEFORE,
        "for tre dage siden": THREE_DAYS_AGO,
        "siden maj": SINCE_MAY,
        "før 2022": BEFORE_2022,
        "sommeren 2022": SUMMER,
        "sidste fredag": LAST_FRIDAY,
        "sidste måned": LAST_MONTH,
        "sidste år": LAST_YEAR,
        "i fjor": LAST_YEAR,
        "i august sidste år": AUGUST_LAST_YEAR,
        "mandag i sidste uge": MONDAY_LAST_WEEK,
        "mellem marts og maj 2024": MARCH_TO_MAY,
        "midten af maj 2024": MID_MAY,
        "første uge af maj 2024": FIRST_WEEK_OF_MAY,
        "3. kvartal 2023": THIRD_QUARTER,
        "uge 19 2025": WEEK_19,
    },
    "nb": {
        "møte i august 2023": AUGUST,
        "5. august 2023": FIFTH,
        "forrige uke": LAST_WEEK,
        "hvem ringte i går": YESTERDAY,
        "i forgårs": DAY_BEFORE,
        "for tre dager siden": THREE_DAYS_AGO,
        "siden mai": SINCE_MAY,
        "før 2022": BEFORE_2022,
        "sommeren 2022": SUMMER,
        "forrige fredag": LAST_FRIDAY,
        "forrige måned": LAST_MONTH,
        "i fjor": LAST_YEAR,
        "i august i fjor": AUGUST_LAST_YEAR,
        "mandag forrige uke": MONDAY_LAST_WEEK,
        "mellom mars og mai 2024": MARCH_TO_MAY,
        "midten av mai 2024": MID_MAY,
        "første uke i mai 2024": FIRST_WEEK_OF_MAY,
        "uke 19 2025": WEEK_19,
    },
    "pl": {
        "spotkanie w sierpniu 2023": AUGUST,
        "5 sierpnia 2023": FIFTH,
        "w zeszłym tygodniu": LAST_WEEK,
        "kto dzwonił wczoraj": YESTERDAY,
        "przedwczoraj": DAY_BEFORE,
        "trzy dni temu": THREE_DAYS_AGO,
        "od maja": SINCE_MAY,
        "przed 2022": BEFORE_2022,
        "latem 2022": SUMMER,
        "w zeszły piątek": LAST_FRIDAY,
        "w zeszłym miesiącu": LAST_MONTH,
        "w zeszłym roku": LAST_YEAR,
        "w sierpniu zeszłego roku": AUGUST_LAST_YEAR,
        "w poniedziałek w zeszłym tygodniu": MONDAY_LAST_WEEK,
        "od marca do maja 2024": MARCH_TO_MAY,
        "w połowie maja 2024": MID_MAY,
        "pierwszy tydzień maja 2024": FIRST_WEEK_OF_MAY,
        "trzeci kwartał 2023": THIRD_QUARTER,
        "tydzień 19 2025": WEEK_19,
    },
    "tr": {
        "Ağustos 2023 toplantısı": AUGUST,
        "2023 Ağustos'ta": AUGUST,
        "5 Ağustos 2023": FIFTH,
        "geçen hafta": LAST_WEEK,
        "dün kim aradı": YESTERDAY,
        "evvelsi gün": DAY_BEFORE,
        "üç gün önce": THREE_DAYS_AGO,
        "Mayıs'tan beri": SINCE_MAY,
        "mayıstan beri": SINCE_MAY,
        "2022'den önce": BEFORE_2022,
        "2022 yazında": SUMMER,
        "geçen cuma": LAST_FRIDAY,
        "geçen ay": LAST_MONTH,
        "geçen yıl": LAST_YEAR,
        "geçen yıl ağustosta": AUGUST_LAST_YEAR,
        "geçen hafta pazartesi": MONDAY_LAST_WEEK,
    },
    "ar": {
        "اجتماع في أغسطس 2023": AUGUST,
        "5 أغسطس 2023": FIFTH,
        "٥ أغسطس ٢٠٢٣": FIFTH,
        "5 آب 2023": FIFTH,
        "الأسبوع الماضي": LAST_WEEK,
        "من اتصل أمس": YESTERDAY,
        "أول أمس": DAY_BEFORE,
        "قبل ثلاثة أيام": THREE_DAYS_AGO,
        "قبل يومين": ("2026-11-13", "2026-11-14"),
        "منذ مايو": SINCE_MAY,
        "قبل 2022": BEFORE_2022,
        "صيف 2022": SUMMER,
        "صيف عام 2022": SUMMER,
        "الجمعة الماضية": LAST_FRIDAY,
        "الشهر الماضي": LAST_MONTH,
        "العام الماضي": LAST_YEAR,
        "في أغسطس من العام الماضي": AUGUST_LAST_YEAR,
        "منتصف مايو 2024": MID_MAY,
        "الأسبوع الأول من مايو 2024": FIRST_WEEK_OF_MAY,
    },
    "hi": {
        "अगस्त 2023 में बैठक": AUGUST,
        "5 अगस्त 2023": FIFTH,
        "५ अगस्त २०२३": FIFTH,
        "पिछले हफ्ते": LAST_WEEK,
        "पिछले सप्ताह": LAST_WEEK,
        "कल किसने फोन किया": YESTERDAY,
        "परसों": DAY_BEFORE,
        "तीन दिन पहले": THREE_DAYS_AGO,
        "मई से": SINCE_MAY,
        "2022 से पहले": BEFORE_2022,
        "2022 की गर्मियों में": SUMMER,
        "पिछले शुक्रवार": LAST_FRIDAY,
        "पिछले महीने": LAST_MONTH,
        "पिछले साल": LAST_YEAR,
        "पिछले साल अगस्त में": AUGUST_LAST_YEAR,
    },
    "ko": {
        "2023년 8월 회의": AUGUST,
        "2023년 8월 5일": FIFTH,
        "지난주 메모": LAST_WEEK,
        "어제 누가 전화했어": YESTERDAY,
        "그저께": DAY_BEFORE,
        "3일 전": THREE_DAYS_AGO,
        "사흘 전": THREE_DAYS_AGO,
        "5월부터": SINCE_MAY,
        "2022년 이전": BEFORE_2022,
        "2022년 여름": SUMMER,
        "지난 금요일": LAST_FRIDAY,
        "지난주 금요일": FRIDAY_LAST_WEEK,
        "지난달": LAST_MONTH,
        "작년": LAST_YEAR,
        "작년 8월": AUGUST_LAST_YEAR,
        "작년 여름": SUMMER_LAST_YEAR,
        "2023년 3분기": THIRD_QUARTER,
    },
    "th": {
        "ประชุมเดือนสิงหาคม 2023": AUGUST,
        "ประชุมเดือนสิงหาคม 2566": AUGUST,
        "5 สิงหาคม 2566": FIFTH,
        "5 ส.ค. 2566": FIFTH,
        "๕ สิงหาคม พ.ศ. ๒๕๖๖": FIFTH,
        "สัปดาห์ที่แล้ว": LAST_WEEK,
        "เมื่อวานใครโทรมา": YESTERDAY,
        "เมื่อวานซืน": DAY_BEFORE,
        "3 วันก่อน": THREE_DAYS_AGO,
        "สามวันที่แล้ว": THREE_DAYS_AGO,
        "ตั้งแต่เดือนพฤษภาคม": SINCE_MAY,
        "ก่อนปี 2565": BEFORE_2022,
        "ก่อนปี 2022": BEFORE_2022,
        "ฤดูร้อนปี 2565": ("2022-03-01", "2022-06-01"),
        "วันศุกร์ที่แล้ว": LAST_FRIDAY,
        "เดือนที่แล้ว": LAST_MONTH,
        "ปีที่แล้ว": LAST_YEAR,
        "สิงหาคมปีที่แล้ว": AUGUST_LAST_YEAR,
        "ในเดือนสิงหาคมของปี 2023": AUGUST,
        "ตั้งแต่วันที่ 8 พฤษภาคม 2569": ("2026-05-08", None),
    },
}  # fmt: skip


def days_of(span: TimeSpan | None, zone: ZoneInfo) -> Days:
    assert span is not None
    times = [time.astimezone(zone) if time is not None else None for time in (span.start, span.end)]
    assert all(time is None or (time.hour, time.minute) == (0, 0) for time in times)
    first, end = (time.date().isoformat() if time is not None else None for time in times)
    return first, end


@each_case("zone", [BERLIN, NEW_YORK])
@each_case(("text", "days"), chain(*map(dict.items, PHRASES.values())))
def test_a_phrase_names_days_of_the_time_zone(text: str, days: Days, zone: ZoneInfo) -> None:
    [mention] = find_times(text)
    assert mention.words in text or not text.isascii()
    assert days_of(resolve(mention, SUNDAY.astimezone(zone)), zone) == days


def test_every_language_has_at_least_ten_phrases() -> None:
    assert {language: len(phrases) >= 10 for language, phrases in PHRASES.items()} == dict.fromkeys(PHRASES, True)


@each_case(
    "text",
    [
        "you may march with us", "Theresa May", "the planet mars", "may I come in", "a march against rain",
        "wie komme ich hier weg", "mes derniers messages", "Rio de Janeiro", "spring boot", "fall back to plan B",
        "second draft", "room 101", "error 40404", "week", "days", "it may 5 times fail", "the sun and the moon",
        "week 3 of the course", "Q1 and Q2 of the quiz", "dun Laoghaire", "a gun for hire", "Maja", "Mart Smeets",
        "the second week", "in the middle of the night", "once upon a time", "W19 nuts", "세월", "the fine print",
        "half of the team", "a touchdown in the fourth quarter",
        "La marca de la anarquía", "ทุกวันนี้", "الذي مارس العصيان",
        "son of a gun", "the end of the week number", "Kasim", "mitten im Wald", "Pazar 12",
    ],
)  # fmt: skip
def test_ordinary_words_are_not_times(text: str) -> None:
    assert find_times(text) == ()


@each_case(
    ("text", "days"),
    [
        ("meeting for April 2023", ("2023-04-01", "2023-05-01")),
        ("trips 2023, May 2024", ("2024-05-01", "2024-06-01")),
        ("da 2023 nichts ging", ("2023-01-01", "2024-01-01")),
        ("na 2022", ("2022-01-01", "2023-01-01")),
        ("the end of May", ("2026-05-21", "2026-06-01")),
        ("from early May to mid June 2023", ("2023-05-01", "2023-06-21")),
        ("calendar week 53", ("2020-12-28", "2021-01-04")),
    ],
)
def test_words_of_several_languages_are_read_in_that_of_the_text(text: str, days: Days) -> None:
    assert days in [days_of(resolve(mention, SUNDAY), ZoneInfo("UTC")) for mention in find_times(text)]


def test_words_are_written_as_they_are_compared() -> None:
    words = {word for text in TIME_WORDS for word in text.split()}
    assert {word for word in words if fold(word).strip() != word} <= EXACT_WORDS


@each_case(
    "text",
    [
        "what did I do yesterday", "was habe ich gestern gemacht", "cosa ho fatto ieri", "wat deed ik gisteren",
        "vad gjorde jag igår", "hvad lavede jeg i går", "hva gjorde jeg i går", "co robiłem wczoraj", "dün ne yaptım",
        "ماذا فعلت أمس", "कल मैंने क्या किया", "어제 뭐 했어", "เมื่อวานฉันทำอะไร", "昨日は何をした",
    ],
)  # fmt: skip
def test_a_question_about_nothing_but_a_day_asks_for_anything(text: str) -> None:
    [mention] = find_times(text)
    assert asks_for_anything(text, mention.words)
    assert not asks_for_anything(f"{text} violin", mention.words)


def test_a_month_without_a_year_takes_that_of_the_next_date() -> None:
    first, last = find_times("not August 11 but August 15 2023")
    assert [days_of(resolve(one, SUNDAY), ZoneInfo("UTC"))[0] for one in (first, last)] == ["2023-08-11", "2023-08-15"]


@each_case(
    ("text", "days"),
    [
        ("what happened between August 11 and August 15 2023", ("2023-08-11", "2023-08-16")),
        ("from May to July 2023", ("2023-05-01", "2023-08-01")),
        ("trips from 2021 until 2023", ("2021-01-01", "2024-01-01")),
        ("June – August 2023", ("2023-06-01", "2023-09-01")),
        ("between November and February 2024", ("2023-11-01", "2024-03-01")),
        ("between November and February", ("2025-11-01", "2026-03-01")),
        ("from 2023-08-05 to 2023-08-07", ("2023-08-05", "2023-08-08")),
        ("zwischen Mai und Juli 2023", ("2023-05-01", "2023-08-01")),
        ("von Mai bis Juli 2023", ("2023-05-01", "2023-08-01")),
        ("entre mai et juillet 2023", ("2023-05-01", "2023-08-01")),
        ("de mai à juillet 2023", ("2023-05-01", "2023-08-01")),
        ("entre mayo y julio de 2023", ("2023-05-01", "2023-08-01")),
        ("desde mayo hasta julio de 2023", ("2023-05-01", "2023-08-01")),
        ("entre maio e julho de 2023", ("2023-05-01", "2023-08-01")),
        ("с мая до июля 2023", ("2023-05-01", "2023-08-01")),
        ("2023年5月から2023年7月", ("2023-05-01", "2023-08-01")),
        ("2023年5月到2023年7月", ("2023-05-01", "2023-08-01")),
        ("2023년 5월부터 2023년 7월", ("2023-05-01", "2023-08-01")),
        ("2021 से 2023 तक", ("2021-01-01", "2024-01-01")),
        ("จากปี 2564 ถึงปี 2566", ("2021-01-01", "2024-01-01")),
        ("da maggio a luglio 2023", ("2023-05-01", "2023-08-01")),
        ("tussen mei en juli 2023", ("2023-05-01", "2023-08-01")),
        ("från maj till juli 2023", ("2023-05-01", "2023-08-01")),
    ],
)
def test_two_times_are_one_period_if_the_text_connects_them(text: str, days: Days) -> None:
    [mention] = find_times(text)
    assert days_of(resolve(mention, SUNDAY), ZoneInfo("UTC")) == days


@each_case("text", ["June and July 2023", "the plan of May, not of July 2023", "before 2021 and in 2023"])
def test_times_that_are_only_listed_stay_apart(text: str) -> None:
    assert len(find_times(text)) == 2


def test_period_that_ends_before_it_begins_does_not_exist() -> None:
    [mention] = find_times("from 2023 to 2021")
    assert resolve(mention, SUNDAY) is None


def test_today_begins_at_midnight_of_the_reader() -> None:
    [today] = find_times("today")
    assert days_of(resolve(today, SUNDAY.astimezone(TOKYO)), TOKYO) == ("2026-11-16", "2026-11-17")
    assert days_of(resolve(today, SUNDAY.astimezone(NEW_YORK)), NEW_YORK) == ("2026-11-15", "2026-11-16")


@each_case(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_a_day_on_which_the_clock_changes_has_another_length(day: str, hours: int) -> None:
    mention = read_time(day)
    assert mention is not None
    span = resolve(mention, SUNDAY.astimezone(BERLIN))
    assert span is not None
    assert span.start is not None
    assert span.end is not None
    assert (span.end - span.start).total_seconds() == hours * 3600


def test_a_week_ago_is_the_same_time_of_day_although_the_clock_changed() -> None:
    now = datetime(2026, 10, 28, 9, 0, tzinfo=BERLIN)
    mention = read_time("7d")
    assert mention is not None
    span = resolve(mention, now)
    assert span is not None
    assert span.start == datetime(2026, 10, 21, 9, 0, tzinfo=BERLIN)


@each_case(
    ("text", "start"),
    [
        ("7d", "2026-11-08T20:30:00+00:00"), ("2h", "2026-11-15T18:30:00+00:00"), ("1m", "2026-10-15T20:30:00+00:00"),
        ("1y", "2025-11-15T20:30:00+00:00"), ("2w", "2026-11-01T20:30:00+00:00"), ("2026", "2026-01-01T00:00:00+00:00"),
        ("2026-11", "2026-11-01T00:00:00+00:00"), ("2026-W46-7", "2026-11-15T00:00:00+00:00"),
        ("2026-11-15T08:30:00+02:00", "2026-11-15T06:30:00+00:00"), ("2026-11-15 08:30", "2026-11-15T08:30:00+00:00"),
        ("may", "2026-05-01T00:00:00+00:00"), ("on Monday", "2026-11-09T00:00:00+00:00"),
        ("last week", "2026-11-02T00:00:00+00:00"), ("昨天", "2026-11-14T00:00:00+00:00"),
    ],
)  # fmt: skip
def test_a_value_is_a_time_as_a_whole(text: str, start: str) -> None:
    mention = read_time(text)
    assert mention is not None
    span = resolve(mention, SUNDAY)
    assert span is not None
    assert span.start == datetime.fromisoformat(start)


@each_case("text", ["", "soon", "2026-13", "2026-02-30", "7", "7x", "cats last week", "yesterday and today"])
def test_other_values_are_not_times(text: str) -> None:
    assert read_time(text) is None


WORDS = sorted({word for phrases in PHRASES.values() for phrase in phrases for word in phrase.split()})
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from([*WORDS, "31", "99", "0", "9999", "-", ","]), max_size=8).map(" ".join),
    st.lists(st.sampled_from("0123456789年月日周上先前天末一二十"), max_size=10).map("".join),
)
MOMENTS = st.datetimes(timezones=st.sampled_from([UTC, BERLIN, TOKYO]))


@given(TEXTS, MOMENTS)
def test_no_text_raises_and_every_span_is_ordered(text: str, now: datetime) -> None:
    for mention in (*find_times(text), *filter(None, [read_time(text)])):
        span = resolve(mention, now)
        if span is not None and span.start is not None and span.end is not None:
            assert span.start <= span.end
        assert span is None or (span.start, span.end) != (None, None)
