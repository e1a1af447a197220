// The program of kafkajs: node client.js (its manners: ../programs.py)
'use strict'

const readline = require('readline')

// kafkajs-lz4 asks for lz4's native half, which would have to be compiled; its JavaScript half does the same.
require('lz4/lib/utils-js')
require.cache[require.resolve('lz4/lib/utils')] = require.cache[require.resolve('lz4/lib/utils-js')]

const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require('kafkajs')
const { ZstdCodec } = require('zstd-codec')
const Lz4Codec = require('kafkajs-lz4')
const { version } = require('kafkajs/package.json')

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const toBytes = characters => (characters === null ? null : Buffer.from(characters, 'latin1'))
const toCharacters = bytes => (bytes === null ? null : bytes.toString('latin1'))

async function main() {
  await registerCodecs()
  say({ version })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line)
    // A client of its own for each request: otherwise requests for metadata name topics of before.
    const kafka = new Kafka({ clientId: 'kafkajs', brokers: [asked.bootstrap], logLevel: logLevel.NOTHING })
    try {
      say(asked.verb === 'produce' ? await produce(kafka, asked) : await fetch(kafka, asked))
    } catch (error) {
      say(error.type ? { refused: `${error.type}: ${error.message}` } : { failed: error.stack })
    }
  }
}

function say(words) {
  process.stdout.write(JSON.stringify(words) + '\n')
}

async function registerCodecs() {
  const zstd = await new Promise(resolve => ZstdCodec.run(resolve))
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
  CompressionCodecs[CompressionTypes.LZ4] = new Lz4Codec().codec
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from(new zstd.Simple().compress(encoder.buffer)),
    // Some clients do not say how large it will be, which the simple way has to know.
    decompress: async buffer => Buffer.from(new zstd.Streaming().decompress(buffer)),
  })
}

async function produce(kafka, { topic, codec, acks, records }) {
  const messages = records.map(record => ({
    key: toBytes(record.key),
    value: toBytes(record.value),
    timestamp: String(record.timestamp),
    headers: headersToSend(record.headers),
    partition: 0,
  }))
  const producer = kafka.producer()
  await producer.connect()
  try {
    await producer.send({ topic, messages, acks: acks === 'all' ? -1 : Number(acks ?? -1), compression: CODECS[codec] })
  } finally {
    await producer.disconnect()
  }
  return { sent: messages.length }
}

// kafkajs fails on a null value; an empty one is what it can do.
function headersToSend(headers) {
  const lists = {}
  for (const [name, value] of headers) {
    lists[name] = [...(lists[name] ?? []), toBytes(value ?? '')]
  }
  return lists
}

let groups = 0

// Without a group kafkajs reads nothing; in one of its own it begins where it is told to.
async function fetch(kafka, { topic, at, value, count }) {
  const records = []
  const consumer = kafka.consumer({ groupId: `kafkajs-${topic}-${process.pid}-${groups++}`, maxWaitTimeInMs: 100 })
  const { CRASH, FETCH, GROUP_JOIN } = consumer.events
  const offset = at === 'timestamp' ? await offsetAt(kafka, topic, value) : String(value)
  if (at === 'offset' || at === 'timestamp') {
    consumer.on(GROUP_JOIN, () => consumer.seek({ topic, partition: 0, offset }))
  }
  if (at === 'end') {
    // It does not tell its position, but it has one when it fetches.
    const off = consumer.on(FETCH, () => (off(), say({ ready: -1 })))
  }
  const crashed = new Promise((_, reject) => consumer.on(CRASH, ({ payload }) => reject(payload.error)))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: at === 'beginning' })
  const all = new Promise((resolve, reject) =>
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        records.push({
          offset: Number(message.offset),
          timestamp: Number(message.timestamp),
          key: toCharacters(message.key),
          value: toCharacters(message.value),
          headers: headersReceived(message.headers),
        })
        if (records.length >= count) resolve()
      },
    }).catch(reject))
  await Promise.race([all, crashed])
  await consumer.disconnect()
  return { records }
}

async function offsetAt(kafka, topic, timestamp) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    return offset
  } finally {
    await admin.disconnect()
  }
}

function headersReceived(headers) {
  return Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().map(value => [name, toCharacters(value)]))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
