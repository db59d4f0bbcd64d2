"""The words of the embedded corpus that CLDR does not hold, as data.

Members of CLDR's classes are chosen here (countries, cities, ...) but never translated.
"""

from typing import NamedTuple


class Noun(NamedTuple):
  """An English plural, and the word elsewhere: gender is m f n, genre is m f."""

  plural: str
  gender: str
  german: str
  german_plural: str
  genre: str
  french: str
  french_plural: str


class Adjective(NamedTuple):
  """German stem; French masculine, before a vowel, feminine, masculine plural."""

  german: str
  before_noun: bool
  french: tuple[str, str, str, str]


class Person(NamedTuple):
  """Someone named by a noun, by gender; `known` ones take 'the', others 'my', ..."""

  feminine: bool
  known: bool
  german: str
  french: str


_NOUNS = """
book books | n Buch Bücher | m livre livres
car cars | n Auto Autos | f voiture voitures
bicycle bicycles | n Fahrrad Fahrräder | m vélo vélos
lamp lamps | f Lampe Lampen | f lampe lampes
table tables | m Tisch Tische | f table tables
chair chairs | m Stuhl Stühle | f chaise chaises
picture pictures | n Bild Bilder | f image images
computer computers | m Computer Computer | m ordinateur ordinateurs
phone phones | n Telefon Telefone | m téléphone téléphones
key keys | m Schlüssel Schlüssel | f clé clés
coat coats | m Mantel Mäntel | m manteau manteaux
hat hats | m Hut Hüte | m chapeau chapeaux
bag bags | f Tasche Taschen | m sac sacs
suitcase suitcases | m Koffer Koffer | f valise valises
umbrella umbrellas | m Regenschirm Regenschirme | m parapluie parapluies
bottle bottles | f Flasche Flaschen | f bouteille bouteilles
ring rings | m Ring Ringe | f bague bagues
newspaper newspapers | f Zeitung Zeitungen | m journal journaux
guitar guitars | f Gitarre Gitarren | f guitare guitares
piano pianos | n Klavier Klaviere | m piano pianos
camera cameras | f Kamera Kameras | m appareil_photo appareils_photo
mirror mirrors | m Spiegel Spiegel | m miroir miroirs
shirt shirts | n Hemd Hemden | f chemise chemises
box boxes | f Kiste Kisten | f boîte boîtes
cup cups | f Tasse Tassen | f tasse tasses
plate plates | m Teller Teller | f assiette assiettes
dictionary dictionaries | n Wörterbuch Wörterbücher | m dictionnaire dictionnaires
gift gifts | n Geschenk Geschenke | m cadeau cadeaux
clock clocks | f Uhr Uhren | f horloge horloges
knife knives | n Messer Messer | m couteau couteaux
carpet carpets | m Teppich Teppiche | m tapis tapis
violin violins | f Geige Geigen | m violon violons
"""

_ADJECTIVES = """
new | neu | before nouveau nouvel nouvelle nouveaux
old | alt | before vieux vieil vieille vieux
small | klein | before petit petit petite petits
big | groß | before grand grand grande grands
beautiful | schön | before beau bel belle beaux
red | rot | after rouge rouge rouge rouges
blue | blau | after bleu bleu bleue bleus
green | grün | after vert vert verte verts
black | schwarz | after noir noir noire noirs
white | weiß | after blanc blanc blanche blancs
expensive | teur | after cher cher chère chers
heavy | schwer | after lourd lourd lourde lourds
strange | seltsam | after étrange étrange étrange étranges
modern | modern | after moderne moderne moderne modernes
"""

_PEOPLE = """
brother | m my Bruder frère
sister | f my Schwester sœur
father | m my Vater père
mother | f my Mutter mère
uncle | m my Onkel oncle
aunt | f my Tante tante
friend | m my Freund ami
grandmother | f my Großmutter grand-mère
son | m my Sohn fils
daughter | f my Tochter fille
doctor | m the Arzt médecin
teacher | m the Lehrer professeur
director | m the Direktor directeur
baker | m the Bäcker boulanger
engineer | m the Ingenieur ingénieur
singer | f the Sängerin chanteuse
"""


def _rows(table: str) -> list[list[list[str]]]:
  """Lines of '|'-separated cells, each a list of words; '_' stands for a space."""
  lines = table.strip().split('\n')
  return [
    [[word.replace('_', ' ') for word in cell.split()] for cell in line.split('|')]
    for line in lines
  ]


NOUNS = {
  english[0]: Noun(english[1], *german, *french)
  for english, german, french in _rows(_NOUNS)
}
ADJECTIVES = {
  english[0]: Adjective(german[0], french[0] == 'before', tuple(french[1:]))
  for english, german, french in _rows(_ADJECTIVES)
}
PEOPLE = {
  english[0]: Person(gender == 'f', determiner == 'the', german, french)
  for english, (gender, determiner, german, french) in _rows(_PEOPLE)
}
# Names spelt alike in the three languages; none ends in a sibilant (German genitive).
MEN = tuple('Paul David Martin Daniel Robert Oliver Adam Simon Leon Victor'.split())
WOMEN = tuple('Anna Maria Emma Laura Julia Clara Nina Sarah Eva Sophia'.split())

# English phrase -> German, French; four each of past, present and future.
ADVERBS = {
  'yesterday': ('gestern', 'hier'),
  'this morning': ('heute Morgen', 'ce matin'),
  'last week': ('letzte Woche', 'la semaine dernière'),
  'last year': ('letztes Jahr', "l'année dernière"),
  'every day': ('jeden Tag', 'tous les jours'),
  'every week': ('jede Woche', 'chaque semaine'),
  'every month': ('jeden Monat', 'chaque mois'),
  'today': ('heute', "aujourd'hui"),
  'tomorrow': ('morgen', 'demain'),
  'tonight': ('heute Abend', 'ce soir'),
  'next week': ('nächste Woche', 'la semaine prochaine'),
  'next year': ('nächstes Jahr', "l'année prochaine"),
}
FOODS = {
  'rice': ('Reis', 'riz'),
  'cheese': ('Käse', 'fromage'),
  'bread': ('Brot', 'pain'),
  'meat': ('Fleisch', 'viande'),
  'fish': ('Fisch', 'poisson'),
  'chocolate': ('Schokolade', 'chocolat'),
}

COUNTRIES = tuple(
  'AR AU AT BE BR BG CA CL CN CO HR CU CZ DK EC EG EE ET FI FR DE GR HU IS IN ID IR IQ'
  ' IE IL IT JP KE LV LB LT LU MY MX MN MA NL NZ NG NO PK PE PH PL PT RO RU SA SN RS'
  ' SG SK SI ZA KR ES SE CH TH TN UA GB US UY VE VN'.split()
)
PLURAL_COUNTRIES = ('NL', 'PH', 'US')
# Countries that take an article in German, by gender; the others take none.
GERMAN_ARTICLES = {
  **{code: 'f' for code in ('CH', 'UA', 'SK', 'MN')},
  **{code: 'm' for code in ('IR', 'IQ', 'LB')},
  **{code: 'p' for code in PLURAL_COUNTRIES},
  'GB': 'n',
}
# French countries are feminine if they end in 'e'; these are the exceptions.
FRENCH_MASCULINE = ('MX',)
FRENCH_FEMININE = ('ZA', 'SA', 'KR')
FRENCH_WITHOUT_ARTICLE = ('CU', 'IL', 'SG')

LANGUAGES = tuple(
  'ar bg zh hr cs da nl en et fi fr de el he hu is id it ja ko lv lt no fa pl pt ro ru'
  ' sr sk sl es sv tr uk vi'.split()
)
CITIES = tuple(
  f'{continent}/{city}'
  for continent, cities in {
    'Europe': 'Vienna Warsaw Prague Rome Lisbon Copenhagen Athens Moscow Brussels'
    ' Bucharest Belgrade London Paris Berlin Madrid Stockholm Oslo Dublin Budapest'
    ' Sofia Zagreb Zurich Amsterdam Riga Vilnius Sarajevo',
    'Africa': 'Cairo Algiers Tunis Nairobi Casablanca Dakar Tripoli',
    'Asia': 'Beirut Tokyo Singapore Baghdad Damascus Seoul Shanghai Bangkok Jakarta'
    ' Jerusalem Tehran',
    'America': 'Mexico_City Havana New_York Chicago Toronto Lima Los_Angeles Santiago',
    'Australia': 'Sydney Melbourne',
  }.items()
  for city in cities.split()
)
NAMED_CURRENCIES = tuple('EUR USD GBP CHF JPY SEK NOK DKK PLN CAD AUD INR'.split())
SYMBOL_CURRENCIES = tuple('EUR USD GBP'.split())
