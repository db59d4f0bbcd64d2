"""The clauses of the embedded corpus as data: parallel in English, German, French.

Three lines a clause. '{thing:acc}' is a slot of type `thing` in the form `acc`; digits
only tell slots of one type apart. In German '@' is where a time stands and '#' where
'nicht' stands. A tense in brackets limits the clause to those named.
"""

# verb's forms / the rest; an indented line goes on with the one above it.
# English: base past. German: infinitive, er-form, participle, sein if not haben; '+'
# after a separable prefix. French: infinitive (if irregular also participle, stem of
# the future, je, il, nous, ils), être if not avoir; clitic pronouns stand before '~'.
VERB_PHRASES = """
buy bought / {thing}
kaufen kauft gekauft / @ {thing:acc} #
acheter acheté achèter achète achète achetons achètent / {thing}

sell sold / {thing} for {money}
verkaufen verkauft verkauft / @ {thing:acc} # für {money}
vendre / {thing} pour {money}

order ordered / {count}
bestellen bestellt bestellt / @ {count}
commander / {count}

find found / {thing} in {city}
finden findet gefunden / @ {thing:acc} # in {city}
trouver / {thing} à {city}

[past future] lose lost / {thing} in {country}
verlieren verliert verloren / @ {thing:acc} # {country:in}
perdre / {thing} {country:in}

look looked / for {thing}
suchen sucht gesucht / @ {thing:acc} #
chercher / {thing}

wait waited / for {person}
warten wartet gewartet / @ # auf {person:acc}
attendre / {person:le} ~ {person}

call called / {person}
an+rufen ruft angerufen / {person:acc} @ #
appeler appelé appeller appelle appelle appelons appellent / {person:le} ~ {person}

help helped / {person}
helfen hilft geholfen / {person:dat} @ #
aider / {person:le} ~ {person}

visit visited / {person} in {city}
besuchen besucht besucht / {person:acc} @ # in {city}
rendre / {person:lui} ~ visite {person:à} à {city}

invite invited / {person} to {city}
ein+laden lädt eingeladen / {person:acc} @ # nach {city}
inviter / {person:le} ~ {person} à {city}

drive drove / {person} to {city}
fahren fährt gefahren / {person:acc} @ # nach {city}
conduire conduit conduir conduis conduit conduisons conduisent /
  {person:le} ~ {person} à {city}

accompany accompanied / {person} to {country}
begleiten begleitet begleitet / {person:acc} @ # {country:to}
accompagner / {person:le} ~ {person} {country:in}

thank thanked / {person} for {thing}
danken dankt gedankt / {person:dat} @ # für {thing:acc}
remercier / {person:le} ~ {person} pour {thing}

give gave / {person} {thing}
geben gibt gegeben / {person:dat} @ {thing:acc} #
donner / {person:lui} ~ {thing} {person:à}

show showed / {person} {thing}
zeigen zeigt gezeigt / {person:dat} @ {thing:acc} #
montrer / {person:lui} ~ {thing} {person:à}

send sent / {person} {thing}
schicken schickt geschickt / {person:dat} @ {thing:acc} #
envoyer envoyé enverr envoie envoie envoyons envoient /
  {person:lui} ~ {thing} {person:à}

lend lent / {person} {money}
leihen leiht geliehen / {person:dat} @ {money}
prêter / {person:lui} ~ {money} {person:à}

describe described / {thing} to {person}
beschreiben beschreibt beschrieben / {person:dat} @ {thing:acc} #
décrire décrit décrir décris décrit décrivons décrivent /
  {person:lui} ~ {thing} {person:à}

write wrote / a letter to {person} in {language}
schreiben schreibt geschrieben / {person:dat} @ einen Brief auf {language}
écrire écrit écrir écris écrit écrivons écrivent /
  {person:lui} ~ une lettre en {language} {person:à}

pay paid / {money} for {thing}
bezahlen bezahlt bezahlt / @ {money} für {thing:acc}
payer payé paier paie paie payons paient / {money} pour {thing}

bring brought / {thing} back
zurück+bringen bringt zurückgebracht / @ {thing:acc} #
rapporter / {thing}

repair repaired / {thing} with {person}
reparieren repariert repariert / @ {thing:acc} # mit {person:dat}
réparer / {thing} avec {person:tonic}

[past future] forget forgot / {thing} in {city}
vergessen vergisst vergessen / @ {thing:acc} # in {city}
oublier / {thing} à {city}

talk talked / about {thing} with {person}
sprechen spricht gesprochen / @ # mit {person:dat} über {thing:acc}
parler / de {thing} avec {person:tonic}

speak spoke / {language} with {person}
sprechen spricht gesprochen / @ mit {person:dat} {language}
parler / {language} avec {person:tonic}

learn learned / {language} in {country}
lernen lernt gelernt / @ {country:in} {language}
apprendre appris apprendr apprends apprend apprenons apprennent /
  le {language} {country:in}

translate translated / {page} pages from {language} into {language2}
übersetzen übersetzt übersetzt / @ {page} Seiten {language:from} {language2:into}
traduire traduit traduir traduis traduit traduisons traduisent /
  {page:f} pages de le {language} en {language2}

travel traveled / to {country} with {person}
reisen reist gereist sein / @ # mit {person:dat} {country:to}
voyager / {country:in} avec {person:tonic}

return returned / to {country}
zurück+kehren kehrt zurückgekehrt sein / @ # {country:to}
retourner être / {country:in}

arrive arrived / in {city}
an+kommen kommt angekommen sein / @ # in {city}
arriver être / à {city}

leave left / for {city}
ab+reisen reist abgereist sein / @ # nach {city}
partir parti partir pars part partons partent être / pour {city}

work worked / in {city}
arbeiten arbeitet gearbeitet / @ # in {city}
travailler / à {city}

live lived / in {country} with {person}
wohnen wohnt gewohnt / @ # mit {person:dat} {country:in}
habiter / {country:in} avec {person:tonic}

earn earned / {money} in {country}
verdienen verdient verdient / @ {country:in} {money}
gagner / {money} {country:in}

run ran / {run} with {person}
laufen läuft gelaufen sein / @ mit {person:dat} {run}
courir couru courr cours court courons courent / {run} avec {person:tonic}

[past future must can want] sleep slept / {hours} in {city}
schlafen schläft geschlafen / @ {hours} in {city}
dormir dormi dormir dors dort dormons dorment / {hours} à {city}

compare compared / {thing} with {thing2}
vergleichen vergleicht verglichen / @ {thing:acc} # mit {thing2:dat}
comparer / {thing} à {thing2}

transport transported / {count} to {city}
transportieren transportiert transportiert / @ {count} nach {city}
transporter / {count} à {city}

eat ate / {mass} of {food}
essen isst gegessen / @ {mass} {food}
manger / {mass} de {food}

read read / the {ordinal} chapter of the book
lesen liest gelesen / @ das {ordinal} Kapitel des Buches #
lire lu lir lis lit lisons lisent / le {ordinal} chapitre du livre

choose chose / {thing} for {person}
aus+suchen sucht ausgesucht / @ {thing:acc} # für {person:acc}
choisir choisi choisir choisis choisit choisissons choisissent /
  {thing} pour {person:tonic}
"""

# subject | rest; in German subject | finite verb | middle | end.
FACTS = """
[present] the train from {city} to {city2} | leaves at {clock}
der Zug von {city} nach {city2} | fährt | @ um {clock} Uhr | ab+
le train de {city} pour {city2} | part à {clock}

[future] the conference in {city} | will begin at {clock}
die Konferenz in {city} | wird | @ um {clock} Uhr | beginnen
la conférence de {city} | commencera à {clock}

[past] the meeting in {city} | lasted {duration}
die Sitzung in {city} | hat | @ {duration} | gedauert
la réunion de {city} | a duré {duration}

[past] {state} | exported {count} for {money}
{state:nom} | hat | @ {count} für {money} | exportiert
{state} | a exporté {count} pour {money}

[past] the population of {country} | grew by {percent}
die Bevölkerung {country:in} | ist | @ um {percent} | gewachsen
la population de {country} | a augmenté de {percent}

[always] {percent} of the people in {country} | speak {language}
{percent} der Menschen {country:in} | sprechen | {language} |
{percent} des habitants de {country} | parlent {language}

[always] {millions} people | live in {country}
{millions} Menschen | leben | {country:in} |
{millions} de personnes | vivent {country:in}

[past] {countries} | signed the agreement
{countries:nom} | haben | @ das Abkommen | unterzeichnet
{countries} | ont signé l'accord

[present] the museum in {city} | is open from {morning} to {evening}
das Museum in {city} | ist | @ von {morning} Uhr bis {evening} Uhr | geöffnet
le musée de {city} | est ouvert de {morning} à {evening}

[past] the temperature in {city} | was {degrees}
die Temperatur in {city} | lag | @ bei {degrees} |
la température à {city} | était de {degrees}

[always] the distance between {city} and {city2} | is {distance}
die Entfernung zwischen {city} und {city2} | beträgt | {distance} |
la distance entre {city} et {city2} | est de {distance}

[always] {this} | costs {money}
{this:nom} | kostet | {money} |
{this} | coûte {money}

[always] {this} | weighs {weight}
{this:nom} | wiegt | {weight} |
{this} | pèse {weight}

[always] {this} | comes from {country}
{this:nom} | kommt | {country:from} |
{this} | vient {country:from}

[past] the price of {this} | rose by {percent}
der Preis {this:gen} | ist | @ um {percent} | gestiegen
le prix de {this} | a augmenté de {percent}

[always] the {ordinal} chapter of the book | has {page} pages
das {ordinal} Kapitel des Buches | hat | {page} Seiten |
le {ordinal} chapitre du livre | compte {page:f} pages

[always] {human} | is {page} years old
{human:nom} | ist | {page} Jahre | alt
{human} | a {page} ans

[always] {human} | was born in {city} {born}
{human:nom} | wurde | {born} in {city} | geboren
{human} | est né{human:e} à {city} {born}

[past] the cook in {city} | used {mass} of {food}
der Koch in {city} | hat | @ {mass} {food} | verwendet
le cuisinier de {city} | a utilisé {mass} de {food}

[past] {number} people | visited the museum in {city}
{number} Menschen | haben | @ das Museum in {city} | besucht
{number} personnes | ont visité le musée de {city}

[past] the ship from {country} | carried {tons} of {food}
das Schiff {country:from} | hat | @ {tons} {food} | transportiert
le navire en provenance {country:from} | a transporté {tons} de {food}

[past] the train to {city} | reached {speed}
der Zug nach {city} | hat | @ {speed} | erreicht
le train pour {city} | a atteint {speed}

[past] the company in {city} | hired {page} people
die Firma in {city} | hat | @ {page} Personen | eingestellt
l'entreprise de {city} | a embauché {page:f} personnes

[always] {language} | is spoken in {countries}
{language} | wird | {countries:in} | gesprochen
le {language} | est parlé {countries:in}

[always] the flight from {city} to {city2} | takes {hours}
der Flug von {city} nach {city2} | dauert | {hours} |
le vol de {city} à {city2} | dure {hours}

[future] the {ordinal} concert | will take place in {city}
das {ordinal} Konzert | wird | @ in {city} | stattfinden
le {ordinal} concert | aura lieu à {city}

[past] the shop in {city} | sold {count}
das Geschäft in {city} | hat | @ {count} | verkauft
le magasin de {city} | a vendu {count}

[past] the ticket to {city} | cost {money}
die Fahrkarte nach {city} | hat | @ {money} | gekostet
le billet pour {city} | a coûté {money}
"""
