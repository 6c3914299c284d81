// @tus/server on its file store or its S3 store, as its own documentation sets it up.
import { createRequire } from 'node:module'
import { open } from 'node:fs/promises'
import { join, resolve } from 'node:path'

const { env } = process
const need = createRequire(`${resolve(env.NODE_MODULES)}/`)
const { Server } = need('@tus/server')

function files() {
  const { FileStore } = need('@tus/file-store')
  // What it acknowledges is on the disk, as on the other side.
  class Synced extends FileStore {
    async write(stream, id, offset) {
      const end = await super.write(stream, id, offset)
      const file = await open(join(env.FOLDER, id), 'r+')
      await file.sync()
      await file.close()
      return end
    }
  }
  return new Synced({ directory: env.FOLDER })
}

function objects() {
  const { S3Store } = need('@tus/s3-store')
  return new S3Store({
    partSize: Number(env.CHUNK),
    // Tags are Amazon's own.
    useTags: false,
    s3ClientConfig: {
      bucket: env.BUCKET,
      endpoint: env.ENDPOINT,
      region: 'us-east-1',
      forcePathStyle: true,
      credentials: { accessKeyId: env.KEY_ID, secretAccessKey: env.SECRET },
    },
  })
}

const datastore = env.STORE === 'file' ? files() : objects()
new Server({ path: '/files', datastore }).listen({ host: '127.0.0.1', port: Number(env.PORT) })
